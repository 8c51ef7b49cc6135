/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers of all kinds that are set for once fire once, each, and are set again when all have. Their times are short, so at every moment one is about to fire, or has done so and its signal waits.
 */
#include "feature.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>

enum { INTERVAL = 3, POSIX = 4, DESCRIPTORS = 2, TIMERS = INTERVAL + POSIX + DESCRIPTORS };

static const int kinds[INTERVAL] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF }, signals[INTERVAL] = { SIGALRM, SIGVTALRM, SIGPROF };
static const clockid_t clocks[POSIX] = { CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };
static timer_t timers[POSIX];
static int fds[DESCRIPTORS];
static volatile uint64_t fired[TIMERS];

static void on_signal(int sig)
{
	for (int i = 0; i < INTERVAL; i++)
		fired[i] += sig == signals[i];
}

static void on_timer(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_code == SI_TIMER)
		fired[info->si_value.sival_int] += 1 + (uint64_t)timer_getoverrun(timers[info->si_value.sival_int - INTERVAL]);
}

static void make(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, with_info = { .sa_sigaction = on_timer, .sa_flags = SA_RESTART | SA_SIGINFO };

	for (int i = 0; i < INTERVAL; i++)
		CHECK(sigaction(signals[i], &sa, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &with_info, NULL) == 0);
	for (int i = 0; i < POSIX; i++) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = INTERVAL + i };

		CHECK(timer_create(clocks[i], &event, &timers[i]) == 0);
	}
	for (int i = 0; i < DESCRIPTORS; i++)
		CHECK((fds[i] = timerfd_create(clocks[i], TFD_NONBLOCK)) >= 0);
}

static void set_all(void)
{
	for (int i = 0; i < INTERVAL; i++) {
		struct itimerval once = { { 0, 0 }, { 0, 500 * (i + 1) } };

		CHECK(setitimer(kinds[i], &once, NULL) == 0);
	}
	for (int i = 0; i < POSIX + DESCRIPTORS; i++) {
		struct itimerspec once = { { 0, 0 }, { 0, 400000 * (i + 1) } };

		CHECK((i < POSIX ? timer_settime(timers[i], 0, &once, NULL) : timerfd_settime(fds[i - POSIX], 0, &once, NULL)) == 0);
	}
}

static int all_fired(uint64_t times)
{
	int all = 1;
	uint64_t n;

	for (int i = 0; i < DESCRIPTORS; i++)
		if (read(fds[i], &n, sizeof(n)) == sizeof(n))
			fired[INTERVAL + POSIX + i] += n;
	for (int i = 0; i < TIMERS; i++) {
		if (fired[i] > times)
			feature_fail("timer %d fired %lu times, and was set %lu times", i, (unsigned long)fired[i], (unsigned long)times);
		all &= fired[i] == times;
	}
	return all;
}

static void set_and_wait(uint64_t times)
{
	const uint64_t limit = feature_now(CLOCK_MONOTONIC) + 15000000000ull;

	set_all();
	while (!all_fired(times)) {
		if (feature_now(CLOCK_MONOTONIC) < limit)
			continue;
		for (int i = 0; i < TIMERS; i++)
			if (fired[i] != times)
				feature_fail("timer %d fired %lu times, and was set %lu times", i, (unsigned long)fired[i], (unsigned long)times);
	}
}

int main(void)
{
	uint64_t times = 0;

	make();
	feature_ready();
	do
		set_and_wait(++times);
	while (feature_step());
	return 0;
}
