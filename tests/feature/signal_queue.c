/* SPDX-License-Identifier: BSD-2-Clause */
/* Real-time signals queue: what is pending, for the process and for each of two threads, keeps its order and its values. */
#include "feature.h"

#include <pthread.h>
#include <signal.h>

enum { QUEUED = 5 };

static pthread_t other;
static _Atomic int other_waits; /* its own signals wait */

static void queue(void)
{
	for (int i = 0; i < QUEUED; i++)
		CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = 100 + i }) == 0);
}

static void queue_to(pthread_t thread, int base)
{
	for (int i = 0; i < QUEUED; i++)
		CHECK(pthread_sigqueue(thread, SIGRTMIN + 3, (union sigval){ .sival_int = base + i }) == 0);
	CHECK(pthread_kill(thread, SIGRTMIN + 3) == 0);
}

static void take_from(int sig, int base)
{
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	for (int i = 0; i < QUEUED; i++) {
		CHECK(sigtimedwait(&set, &info, &(struct timespec){ 0 }) == sig);
		CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == base + i && info.si_pid == getpid());
	}
	if (sig != SIGRTMIN + 2)
		CHECK(sigtimedwait(&set, &info, &(struct timespec){ 0 }) == sig && info.si_code == SI_USER && info.si_pid == getpid()); /* libc says so for SI_TKILL */
	CHECK(sigtimedwait(&set, &info, &(struct timespec){ 0 }) == -1 && errno == EAGAIN);
}

static void *wait_and_take(void *arg)
{
	while (!other_waits)
		feature_work();
	do {
		feature_work();
	} while (!feature_finished());
	take_from(SIGRTMIN + 3, 300);
	return arg;
}

int main(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && pthread_create(&other, NULL, wait_and_take, NULL) == 0);
	queue();
	queue_to(pthread_self(), 200);
	queue_to(other, 300);
	other_waits = 1;
	feature_ready();
	do {
		take_from(SIGRTMIN + 2, 100);
		queue();
		take_from(SIGRTMIN + 3, 200);
		queue_to(pthread_self(), 200);
		feature_work();
	} while (feature_step());
	take_from(SIGRTMIN + 2, 100);
	take_from(SIGRTMIN + 3, 200);
	CHECK(pthread_join(other, NULL) == 0);
	return 0;
}
