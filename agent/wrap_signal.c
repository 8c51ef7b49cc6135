/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hides our signal: the program can neither block it, nor take it, nor replace its handler. Each wrapper takes it out of the sets
 * that it passes on; asking for its action answers SIG_DFL, setting it is accepted and forgotten. No state.
 */
#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>

#include "agent/agent.h"
#include "agent/wait.h"
#include "agent/wrap.h"

static bool is_ours(int sig)
{
	return agent.active && sig == agent.signal;
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction copy;

	WRAP_READY(sigaction);
	if (is_ours(sig)) {
		if (old)
			memset(old, 0, sizeof(*old));
		return 0;
	}
	if (act && agent.active) {
		copy = *act;
		sigdelset(&copy.sa_mask, agent.signal);
		act = &copy;
	}
	return real.sigaction(sig, act, old);
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	WRAP_READY(signal);
	return is_ours(sig) ? SIG_DFL : real.signal(sig, handler);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	WRAP_READY(sigprocmask);
	return real.sigprocmask(how, wait_without_ours(set, &copy), old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	WRAP_READY(pthread_sigmask);
	return real.pthread_sigmask(how, wait_without_ours(set, &copy), old);
}

EXPORT int sigwait(const sigset_t *set, int *sig)
{
	sigset_t copy;

	WRAP_READY(sigwait);
	return real.sigwait(wait_without_ours(set, &copy), sig);
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
	sigset_t copy;

	WRAP_READY(sigwaitinfo);
	return real.sigwaitinfo(wait_without_ours(set, &copy), info);
}

EXPORT int signalfd(int fd, const sigset_t *set, int flags)
{
	sigset_t copy;

	WRAP_READY(signalfd);
	return real.signalfd(fd, wait_without_ours(set, &copy), flags);
}
