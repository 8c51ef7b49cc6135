/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors over process borders, and out of the way of numbers that a program knows. The first two want the right to trace
 * the other process: same user, dumpable, and under Yama its consent (fdpass_consent).
 */
#pragma once

#include "base/sys.h"

#define FDPASS_PARK_BASE 640 /* parked descriptors live above the numbers that programs commonly use */

/* A copy, close-on-exec, of descriptor @fd of process @pid; or -errno. */
static inline int fdpass_take(int pid, int fd)
{
	int process = (int)RAW2(SYS_pidfd_open, pid, 0), r;

	if (process < 0)
		return process;
	r = (int)RAW3(SYS_pidfd_getfd, process, fd, 0);
	raw_close(process);
	return r;
}

/* 0 when both descriptors name one open file description, greater when not, or -errno. */
static inline int fdpass_compare(int pid_a, int fd_a, int pid_b, int fd_b)
{
	return (int)RAW5(SYS_kcmp, pid_a, pid_b, 0 /* KCMP_FILE */, fd_a, fd_b);
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
