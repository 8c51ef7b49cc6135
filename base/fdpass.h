/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors over process borders, and out of the way of numbers that a program knows. The first two want the right to trace
 * the other process: same user, dumpable, and under Yama its consent (fdpass_consent). Where the kernel refuses pidfd_getfd all the same, as
 * in a container, or the other's first thread has ended, which pidfd_getfd looks at, fdpass_take asks the other process itself: fdpass.c.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>

#include "base/sys.h"

#define FDPASS_PARK_BASE 640 /* parked descriptors live above the numbers that programs commonly use */

/* What this is: process @self of the job whose directory is @path, which stays the caller's. */
void fdpass_job(const char *path, int self);
const char *fdpass_directory(void); /* NULL: of no job */

/* A copy, close-on-exec, of descriptor @fd of process @pid; or -errno. Of @self: in a thread that has the program's table only. */
int fdpass_take(int pid, int fd);
#define FDPASS_NAME 48
/* Where the file that descriptor @fd of process @pid names can be opened anew. A descriptor to be closed after that, or -EBADF: none is. */
int fdpass_name(char path[FDPASS_NAME], int pid, int fd);
/* Around many of them in one thread, where they may be asked for: the socket is made once. 0, or -errno: then each makes its own. */
int fdpass_ask_begin(void);
void fdpass_ask_end(void);

/* Hands out this process's descriptors until fdpass_serve_end, if pidfd_getfd cannot. Its own has number @above or a higher one. 0 or -errno. */
int fdpass_serve(int above);
void fdpass_serve_end(void);

/* What a call that a container's filter, or a kernel without it, refuses answers. */
static inline bool fdpass_is_refused(long r)
{
	return r == -EPERM || r == -ENOSYS;
}

/* 0 when both descriptors name one open file description, greater when not, or -errno. By threads that have those tables: the first one of a process may have ended. */
static inline int fdpass_compare(int tid_a, int fd_a, int tid_b, int fd_b)
{
	return (int)RAW5(SYS_kcmp, tid_a, tid_b, 0 /* KCMP_FILE */, fd_a, fd_b);
}

/* Yama's scope 1 lets only a parent trace: allows every process of this user. Elsewhere EINVAL, and not needed. */
static inline void fdpass_consent(void)
{
	RAW5(SYS_prctl, 0x59616d61 /* PR_SET_PTRACER */, -1L, 0, 0, 0);
}

/* Moves @fd to a number out of the way; the new number, or -errno and @fd is closed. */
static inline int fdpass_park(int fd)
{
	int r = raw_fcntl(fd, F_DUPFD_CLOEXEC, FDPASS_PARK_BASE);

	if (r < 0)
		r = raw_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	raw_close(fd);
	return r;
}
