/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls with a relative time-out that the kernel does not update: the wrapper notes the deadline, on CLOCK_MONOTONIC, in the thread's
 * state, where call.c finds it when our signal has interrupted the call. A handler that runs meanwhile may wait too: the outer
 * deadline is put back. A deadline that a longjmp or a cancellation leaves behind is harmless: it is read only from within
 * such a call, which has set its own.
 */
#include <errno.h>
#include <stdarg.h>

#include "agent/agent.h"
#include "agent/wrap.h"

static uint64_t note(uint64_t ns)
{
	uint64_t old = fermata_thread.deadline_ns;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fermata_thread.deadline_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns;
	return old;
}

static uint64_t to_ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* Runs @call with the deadline @ns from now noted. */
#define NOTED(ns, call)                                  \
	({                                               \
		uint64_t noted_old = note(ns);           \
		__typeof__(call) noted_ret = (call);     \
		fermata_thread.deadline_ns = noted_old;  \
		noted_ret;                               \
	})

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	WRAP_READY(poll);
	if (timeout <= 0)
		return real.poll(fds, n, timeout);
	return NOTED((uint64_t)timeout * 1000000u, real.poll(fds, n, timeout));
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	WRAP_READY(epoll_wait);
	if (timeout <= 0)
		return real.epoll_wait(fd, events, n, timeout);
	return NOTED((uint64_t)timeout * 1000000u, real.epoll_wait(fd, events, n, timeout));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *set)
{
	sigset_t copy;

	WRAP_READY(epoll_pwait);
	if (set && agent.active) { /* our signal stays open: wrap_signal.c */
		copy = *set;
		sigdelset(&copy, agent.signal);
		set = &copy;
	}
	if (timeout <= 0)
		return real.epoll_pwait(fd, events, n, timeout, set);
	return NOTED((uint64_t)timeout * 1000000u, real.epoll_pwait(fd, events, n, timeout, set));
}

EXPORT int nanosleep(const struct timespec *req, struct timespec *rem)
{
	WRAP_READY(nanosleep);
	if (!req || rem)
		return real.nanosleep(req, rem);
	return NOTED(to_ns(req), real.nanosleep(req, rem));
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *req, struct timespec *rem)
{
	WRAP_READY(clock_nanosleep);
	if (!req || rem || (flags & TIMER_ABSTIME))
		return real.clock_nanosleep(clock, flags, req, rem);
	return NOTED(to_ns(req), real.clock_nanosleep(clock, flags, req, rem));
}

EXPORT int usleep(useconds_t us)
{
	WRAP_READY(usleep);
	return NOTED((uint64_t)us * 1000u, real.usleep(us));
}

EXPORT int semtimedop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout)
{
	WRAP_READY(semtimedop);
	if (!timeout)
		return real.semtimedop(id, ops, n, timeout);
	return NOTED(to_ns(timeout), real.semtimedop(id, ops, n, timeout));
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	sigset_t copy;

	WRAP_READY(sigtimedwait);
	if (agent.active) {
		copy = *set;
		sigdelset(&copy, agent.signal);
		set = &copy;
	}
	if (!timeout)
		return real.sigtimedwait(set, info, timeout);
	return NOTED(to_ns(timeout), real.sigtimedwait(set, info, timeout));
}

/* The relative time-out that system call @nr was given, in nanoseconds; 0: none, or the kernel keeps it itself. */
static uint64_t timeout_of(long nr, const long *a)
{
	switch (nr) {
	case SYS_poll:
		return (int)a[2] > 0 ? (uint64_t)a[2] * 1000000u : 0;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)a[3] > 0 ? (uint64_t)a[3] * 1000000u : 0;
	case SYS_futex:
		return (a[1] & 0x7f) == FUTEX_WAIT && a[3] ? to_ns((const struct timespec *)a[3]) : 0;
	case SYS_nanosleep:
		return a[0] && !a[1] ? to_ns((const struct timespec *)a[0]) : 0;
	default:
		return 0;
	}
}

EXPORT long syscall(long nr, ...)
{
	uint64_t timeout;
	long a[6];
	va_list ap;

	WRAP_READY(syscall);
	va_start(ap, nr);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (unlikely(nr == SYS_timer_create || nr == SYS_timer_settime) && agent.active)
		return wrap_timer_syscall(nr, a);
	timeout = timeout_of(nr, a);
	if (likely(!timeout))
		return real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return NOTED(timeout, real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}
