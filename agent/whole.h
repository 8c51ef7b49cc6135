/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that move all that is asked for unless a signal comes meanwhile: ours must not be seen by a smaller number (wrap_whole.c). */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/macro.h"
#include "fermata/region.h"

/* To be called before the call. */
static inline void whole_begin(void)
{
	fermata_thread.cut = 0;
}

/* We came at the end of the call, which has @moved that much: if this is less than all, it may be because of us. */
static inline bool whole_is_cut(ssize_t moved)
{
	return unlikely(moved > 0 && fermata_thread.cut == moved);
}

/* libc's, of _FORTIFY_SOURCE: @room is what there is at @to, and __chk_fail() ends a program that would overrun it. */
extern void __chk_fail(void) __attribute__((noreturn));
extern ssize_t __read_chk(int fd, void *to, size_t n, size_t room);
extern ssize_t __recv_chk(int fd, void *to, size_t n, size_t room, int flags);
extern ssize_t __recvfrom_chk(int fd, void *to, size_t n, size_t room, int flags, struct sockaddr *from, socklen_t *length);

ssize_t whole_write(int fd, const void *data, size_t n, ssize_t moved); /* the rest: what has been moved in all */
