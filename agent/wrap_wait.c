/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls with a relative time-out that the kernel does not update: the wrapper notes the deadline (wait.h), and call.c finds it when our signal has
 * interrupted the call. Those that open signals for their time are in wrap_suspend.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <threads.h>

#include "agent/agent.h"
#include "agent/wait.h"
#include "agent/wrap.h"

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	WRAP_READY(poll);
	if (timeout <= 0)
		return real.poll(fds, n, timeout);
	return WAIT_NOTED((uint64_t)timeout * 1000000u, real.poll(fds, n, timeout));
}

/* What a program built with _FORTIFY_SOURCE calls in place of poll. */
EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	if (n > size / sizeof(*fds))
		__chk_fail();
	return poll(fds, n, timeout);
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	WRAP_READY(epoll_wait);
	if (timeout <= 0)
		return real.epoll_wait(fd, events, n, timeout);
	return WAIT_NOTED((uint64_t)timeout * 1000000u, real.epoll_wait(fd, events, n, timeout));
}

EXPORT int nanosleep(const struct timespec *req, struct timespec *rem)
{
	WRAP_READY(nanosleep);
	if (!req || rem)
		return real.nanosleep(req, rem);
	return WAIT_NOTED(wait_ns(req), real.nanosleep(req, rem));
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *req, struct timespec *rem)
{
	struct timespec left;

	WRAP_READY(clock_nanosleep);
	if (!req || rem || (flags & TIMER_ABSTIME))
		return real.clock_nanosleep(clock, flags, req, rem);
	if (clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID) /* whose time has nothing to do with any other's */
		return real.clock_nanosleep(clock, flags, req, &left);
	return WAIT_NOTED(wait_ns(req), real.clock_nanosleep(clock, flags, req, rem));
}

EXPORT int thrd_sleep(const struct timespec *req, struct timespec *rem)
{
	WRAP_READY(thrd_sleep);
	if (!req || rem)
		return real.thrd_sleep(req, rem);
	return WAIT_NOTED(wait_ns(req), real.thrd_sleep(req, rem));
}

EXPORT int usleep(useconds_t us)
{
	WRAP_READY(usleep);
	return WAIT_NOTED((uint64_t)us * 1000u, real.usleep(us));
}

EXPORT int aio_suspend(const struct aiocb *const list[], int n, const struct timespec *timeout)
{
	WRAP_READY(aio_suspend);
	if (!timeout)
		return real.aio_suspend(list, n, timeout);
	return WAIT_NOTED(wait_ns(timeout), real.aio_suspend(list, n, timeout));
}

EXPORT int aio_suspend64(const struct aiocb64 *const list[], int n, const struct timespec *timeout)
{
	return aio_suspend((const struct aiocb *const *)list, n, timeout);
}

EXPORT int semtimedop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout)
{
	WRAP_READY(semtimedop);
	if (!timeout)
		return wrap_semtimedop(id, ops, n, timeout);
	return WAIT_NOTED(wait_ns(timeout), wrap_semtimedop(id, ops, n, timeout));
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	sigset_t copy;

	WRAP_READY(sigtimedwait);
	set = wait_without_ours(set, &copy);
	if (!timeout)
		return real.sigtimedwait(set, info, timeout);
	return WAIT_NOTED(wait_ns(timeout), real.sigtimedwait(set, info, timeout));
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
		return (a[1] & 0x7f) == FUTEX_WAIT && a[3] ? wait_ns((const struct timespec *)a[3]) : 0;
	case SYS_rt_sigtimedwait:
		return a[2] ? wait_ns((const struct timespec *)a[2]) : 0;
	case SYS_semtimedop:
	case SYS_epoll_pwait2:
		return a[3] ? wait_ns((const struct timespec *)a[3]) : 0;
	case SYS_nanosleep:
		return a[0] && !a[1] ? wait_ns((const struct timespec *)a[0]) : 0;
	default:
		return 0;
	}
}

EXPORT long syscall(long nr, ...)
{
	const long *outer = fermata_thread.by_number; /* of what the handler that we are in has interrupted */
	long called[7] = { nr }, *const a = called + 1, r;
	uint64_t timeout;
	va_list ap;

	WRAP_READY(syscall);
	va_start(ap, nr);
	for (size_t i = 1; i < ARRAY_SIZE(called); i++)
		called[i] = va_arg(ap, long);
	va_end(ap);
	if (unlikely(nr == SYS_timer_create || nr == SYS_timer_settime) && agent.active)
		return wrap_timer_syscall(nr, a);
	if (unlikely(nr == SYS_seccomp || nr == SYS_prctl))
		return wrap_prctl_syscall(nr, a);
	if (unlikely(nr == SYS_unshare || nr == SYS_setns || nr == SYS_landlock_restrict_self))
		return wrap_confine_syscall(nr, a);
	if (unlikely(nr == SYS_keyctl || nr == SYS_add_key || nr == SYS_request_key))
		return wrap_keys_syscall(nr, a);
	if (unlikely(nr == SYS_mmap || nr == SYS_munmap || nr == SYS_madvise || nr == SYS_mbind))
		return wrap_map_syscall(nr, a);
	if (unlikely(nr == SYS_io_uring_setup || nr == SYS_io_setup))
		return wrap_async_syscall(nr);
	if (unlikely(nr == SYS_inotify_init || nr == SYS_inotify_init1 || nr == SYS_inotify_add_watch || nr == SYS_inotify_rm_watch))
		return wrap_inotify_syscall(nr, a);
	if (unlikely(nr == SYS_close_range))
		return close_range((unsigned int)a[0], (unsigned int)a[1], (int)a[2]);
	if (unlikely(nr == SYS_close))
		return close((int)a[0]);
	timeout = timeout_of(nr, a);
	fermata_thread.by_number = called;
	if (likely(!timeout))
		r = real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	else
		r = WAIT_NOTED(timeout, real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
	fermata_thread.by_number = outer;
	return r;
}
