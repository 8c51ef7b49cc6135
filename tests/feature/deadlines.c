/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers that count the time from now on, of whatever interface and clock, are due at moments of CLOCK_MONOTONIC that stay where they were: none of them comes late or early against the others, or
 * against a sleep.
 */
#include "feature.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>

enum { POSIX = 3, DESCRIPTORS = 2, TIMERS = 1 + POSIX + DESCRIPTORS };

#define FAR_S 100000
#define LOOK_NS 300000u
#define LATE_NS 8000000 /* what the notes of several moments may be apart; a restart takes twice as long */

static const clockid_t clocks[POSIX] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_TAI };
static timer_t timers[POSIX];
static int fds[DESCRIPTORS];
static uint64_t due[TIMERS];

static uint64_t left(int i)
{
	struct itimerspec s = { 0 };
	struct itimerval v;

	if (i == 0) {
		CHECK(getitimer(ITIMER_REAL, &v) == 0);
		return (uint64_t)v.it_value.tv_sec * 1000000000u + (uint64_t)v.it_value.tv_usec * 1000;
	}
	CHECK((i <= POSIX ? timer_gettime(timers[i - 1], &s) : timerfd_gettime(fds[i - 1 - POSIX], &s)) == 0);
	return (uint64_t)s.it_value.tv_sec * 1000000000u + (uint64_t)s.it_value.tv_nsec;
}

static uint64_t look(int i)
{
	uint64_t begin, after, more;

	do {
		begin = feature_now(CLOCK_MONOTONIC);
		more = left(i);
		after = feature_now(CLOCK_MONOTONIC);
	} while (after - begin > LOOK_NS);
	return begin + more;
}

static void make(void)
{
	struct itimerval once = { { 0, 0 }, { FAR_S, 0 } };

	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
	for (int i = 0; i < POSIX + DESCRIPTORS; i++) {
		struct itimerspec s = { { i % 2, 0 }, { FAR_S + i, 0 } };
		int k = i - POSIX;

		if (i < POSIX)
			CHECK(timer_create(clocks[i], NULL, &timers[i]) == 0 && timer_settime(timers[i], 0, &s, NULL) == 0);
		else
			CHECK((fds[k] = timerfd_create(clocks[k], 0)) >= 0 && timerfd_settime(fds[k], 0, &s, NULL) == 0);
	}
	for (int i = 0; i < TIMERS; i++)
		due[i] = look(i);
}

int main(void)
{
	make();
	feature_ready();
	do {
		for (int i = 0; i < TIMERS; i++) {
			int64_t moved = (int64_t)(look(i) - due[i]);

			if (moved > LATE_NS || moved < -LATE_NS)
				feature_fail("timer %d is due %ld us later than it was", i, (long)(moved / 1000));
		}
	} while (feature_step());
	return 0;
}
