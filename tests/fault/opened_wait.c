/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits in a call that opens a blocked signal, which comes, and whose handler ends the call: opened_wait pselect|ppoll|sigsuspend|epoll_pwait. As a feature program. */
#include "../feature/feature.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile sig_atomic_t came;

static void handler(int sig)
{
	(void)sig;
	came++;
}

static int wait_in(const char *call, int epoll, const sigset_t *none)
{
	struct epoll_event event;

	if (strcmp(call, "pselect") == 0)
		return pselect(0, NULL, NULL, NULL, NULL, none);
	if (strcmp(call, "ppoll") == 0)
		return ppoll(NULL, 0, NULL, none);
	if (strcmp(call, "epoll_pwait") == 0)
		return epoll_pwait(epoll, &event, 1, -1, none);
	return sigsuspend(none);
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = handler };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	sigset_t none, one;

	CHECK(argc == 2 && epoll >= 0);
	sigemptyset(&none);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &one, NULL) == 0);
	feature_ready();
	for (int n = 1; feature_step(); n++)
		CHECK(raise(SIGUSR1) == 0 && wait_in(argv[1], epoll, &none) == -1 && errno == EINTR && came == n);
	return 0;
}
