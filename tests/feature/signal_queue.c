/* SPDX-License-Identifier: BSD-2-Clause */
/* Real-time signals queue: what is pending keeps its order and its values. */
#include "feature.h"

#include <signal.h>

enum { QUEUED = 5 };

static void queue(void)
{
	for (int i = 0; i < QUEUED; i++)
		CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = 100 + i }) == 0);
}

static void take(sigset_t *set)
{
	siginfo_t info;

	for (int i = 0; i < QUEUED; i++) {
		CHECK(sigtimedwait(set, &info, &(struct timespec){ 0 }) == SIGRTMIN + 2);
		CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == 100 + i && info.si_pid == getpid());
	}
	CHECK(sigtimedwait(set, &info, &(struct timespec){ 0 }) == -1 && errno == EAGAIN);
}

int main(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	queue();
	feature_ready();
	do {
		take(&set);
		queue();
		feature_work();
	} while (feature_step());
	take(&set);
	return 0;
}
