/* SPDX-License-Identifier: BSD-2-Clause */
/* Interval timers that are set for once fire once, each, and are set again then. Their times are short, so at every moment one is about to fire, or has done so and its signal waits. */
#include "feature.h"

#include <signal.h>
#include <sys/time.h>

enum { TIMERS = 3 };

static const int kinds[TIMERS] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF }, signals[TIMERS] = { SIGALRM, SIGVTALRM, SIGPROF };
static volatile uint64_t fired[TIMERS];

static void on_signal(int sig)
{
	for (int i = 0; i < TIMERS; i++)
		fired[i] += sig == signals[i];
}

static int all_fired(uint64_t times)
{
	int all = 1;

	for (int i = 0; i < TIMERS; i++) {
		if (fired[i] > times)
			feature_fail("signal %d came %lu times, its timer was set %lu times", signals[i], (unsigned long)fired[i], (unsigned long)times);
		all &= fired[i] == times;
	}
	return all;
}

static void set_and_wait(uint64_t times)
{
	const uint64_t limit = feature_now(CLOCK_MONOTONIC) + 15000000000ull;

	for (int i = 0; i < TIMERS; i++) {
		struct itimerval once = { { 0, 0 }, { 0, 500 * (i + 1) } };

		CHECK(setitimer(kinds[i], &once, NULL) == 0);
	}
	while (!all_fired(times))
		if (feature_now(CLOCK_MONOTONIC) > limit)
			feature_fail("signals came %lu, %lu, %lu times, their timers were set %lu times", (unsigned long)fired[0], (unsigned long)fired[1], (unsigned long)fired[2],
				     (unsigned long)times);
}

int main(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	uint64_t times = 0;

	for (int i = 0; i < TIMERS; i++)
		CHECK(sigaction(signals[i], &sa, NULL) == 0);
	feature_ready();
	do
		set_and_wait(++times);
	while (feature_step());
	return 0;
}
