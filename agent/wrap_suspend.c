/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that open signals for their time: sigsuspend, ppoll, pselect, epoll_pwait; and pause, which becomes one. No
 * state.
 *
 * Such a call must end when a handler of the program's has run. If our signal comes just when that handler returns, its
 * frame is the interrupted call's (behind the instruction, -EINTR), call.c takes the EINTR for ours, and the call
 * begins again: a wake-up lost. So our signal is blocked around the call, and only the call's own mask opens it: it
 * interrupts the waiting, or a handler in mid-run, but when the handler has returned it waits until the wrapper has its
 * EINTR. (What else asks a thread to stop that blocks ours, SIGSETXID, is not sent to one on its way: stop_setxid.c.)
 *
 * A handler that leaves by siglongjmp has the mask of sigsetjmp; one that leaves by longjmp, or by a cancellation,
 * keeps its own, in which ours is open. Other calls (poll, nanosleep, read) are no matter: a program that waits so for
 * a handler can lose its signal just before the call, too.
 */
#include "agent/agent.h"
#include "agent/wait.h"
#include "agent/wrap.h"

/* True if done. A cancellation that is due comes before, and does not leave with our signal blocked. */
static bool block_ours(const sigset_t *set)
{
	const uint64_t ours = 1ull << (agent.signal - 1);

	if (!set || !agent.active)
		return false;
	pthread_testcancel();
	raw_sigprocmask(SIG_BLOCK, &ours, NULL);
	return true;
}

static void open_ours(void)
{
	const uint64_t ours = 1ull << (agent.signal - 1);

	raw_sigprocmask(SIG_UNBLOCK, &ours, NULL);
}

#define OURS_IN_CALL_ONLY(set, call)                                                                                   \
	({                                                                                                             \
		bool blocked = block_ours(set);                                                                        \
		__typeof__(call) ret = (call);                                                                         \
                                                                                                                       \
		if (blocked)                                                                                           \
			open_ours();                                                                                   \
		ret;                                                                                                   \
	})

EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t copy;

	WRAP_READY(sigsuspend);
	return OURS_IN_CALL_ONLY(set, real.sigsuspend(wait_without_ours(set, &copy)));
}

EXPORT int pause(void)
{
	sigset_t now;

	WRAP_READY(pthread_sigmask);
	real.pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigsuspend(&now);
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set)
{
	sigset_t copy;

	WRAP_READY(ppoll);
	return OURS_IN_CALL_ONLY(set, real.ppoll(fds, n, timeout, wait_without_ours(set, &copy)));
}

/* What a program built with _FORTIFY_SOURCE calls in place of ppoll. */
EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set, size_t size)
{
	if (n > size / sizeof(*fds))
		__chk_fail();
	return ppoll(fds, n, timeout, set);
}

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *set)
{
	sigset_t copy;

	WRAP_READY(pselect);
	return OURS_IN_CALL_ONLY(set, real.pselect(n, r, w, e, timeout, wait_without_ours(set, &copy)));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *set)
{
	uint64_t ns = timeout > 0 ? (uint64_t)timeout * 1000000u : 0;
	sigset_t copy;

	WRAP_READY(epoll_pwait);
	return WAIT_NOTED(
	    ns, OURS_IN_CALL_ONLY(set, real.epoll_pwait(fd, events, n, timeout, wait_without_ours(set, &copy))));
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout, const sigset_t *set)
{
	sigset_t copy;

	WRAP_READY(epoll_pwait2);
	return WAIT_NOTED(
	    timeout ? wait_ns(timeout) : 0,
	    OURS_IN_CALL_ONLY(set, real.epoll_pwait2(fd, events, n, timeout, wait_without_ours(set, &copy))));
}
