/* SPDX-License-Identifier: BSD-2-Clause */
/* Interval timers tick on, each at its own pace; an alarm far away stays far away. */
#include "feature.h"

#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t real_ticks, virtual_ticks, prof_ticks;

static void tick(int sig)
{
	real_ticks += sig == SIGALRM;
	virtual_ticks += sig == SIGVTALRM;
	prof_ticks += sig == SIGPROF;
}

static void start(int which, int sig, int usec)
{
	struct itimerval it = { { 0, usec }, { 0, usec } };
	struct sigaction sa = { .sa_handler = tick, .sa_flags = SA_RESTART };

	CHECK(sigaction(sig, &sa, NULL) == 0);
	CHECK(setitimer(which, &it, NULL) == 0);
}

static void check(int which, int usec)
{
	struct itimerval it;

	CHECK(getitimer(which, &it) == 0);
	if (it.it_interval.tv_sec || it.it_interval.tv_usec / 1000 != usec / 1000 || it.it_value.tv_sec ||
	    it.it_value.tv_usec > usec + 10000)
		feature_fail("timer %d: every %ld s %ld us, next in %ld s %ld us", which, it.it_interval.tv_sec,
			     it.it_interval.tv_usec, it.it_value.tv_sec, it.it_value.tv_usec);
}

int main(void)
{
	start(ITIMER_REAL, SIGALRM, 5000);
	start(ITIMER_VIRTUAL, SIGVTALRM, 8000);
	start(ITIMER_PROF, SIGPROF, 8000);
	feature_ready();
	do {
		int real = real_ticks, virt = virtual_ticks, prof = prof_ticks;

		while (real_ticks == real || virtual_ticks == virt || prof_ticks == prof)
			feature_work();
		check(ITIMER_REAL, 5000);
		check(ITIMER_VIRTUAL, 8000);
		check(ITIMER_PROF, 8000);
	} while (feature_step());
	return 0;
}
