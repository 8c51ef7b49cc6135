/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the wrappers of waiting calls share.
 *
 * WAIT_NOTED(ns, call) runs a call with its deadline noted, on CLOCK_MONOTONIC, in the thread's state. A handler that
 * runs meanwhile may wait too: the outer deadline is put back. A deadline that a longjmp out of such a handler leaves
 * behind is read by the next call only if that has not come by these wrappers (libc's own resolver): at a checkpoint it
 * would end as if its time were over.
 */
#pragma once

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/whole.h"

/* libc's, of _FORTIFY_SOURCE: @size is that of @fds in bytes, and __chk_fail() (agent/whole.h) ends a program that would overrun it. */
extern int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
extern int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set, size_t size);

/* @set, or @copy, which is @set without our signal. @set may be NULL. */
static inline const sigset_t *wait_without_ours(const sigset_t *set, sigset_t *copy)
{
	if (!set || !agent.active || !(set->__val[0] >> (agent.signal - 1) & 1)) /* sigismember is a call */
		return set;
	*copy = *set;
	sigdelset(copy, agent.signal);
	return copy;
}

/* The deadline in force until now. */
static inline uint64_t wait_note(uint64_t ns)
{
	uint64_t old = fermata_thread.deadline_ns;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fermata_thread.deadline_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns;
	return old;
}

#define WAIT_LONGEST_S 4000000000ull /* 126 years; longer ones than that are as good as endless */

static inline uint64_t wait_ns(const struct timespec *t)
{
	if ((uint64_t)t->tv_sec > WAIT_LONGEST_S)
		return WAIT_LONGEST_S * 1000000000u;
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

#define WAIT_NOTED(ns, call)                                                                                           \
	({                                                                                                             \
		uint64_t noted_old = wait_note(ns);                                                                    \
		__typeof__(call) noted_ret = (call);                                                                   \
		fermata_thread.deadline_ns = noted_old;                                                                \
		noted_ret;                                                                                             \
	})
