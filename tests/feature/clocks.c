/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clocks as the vdso and the kernel tell them, in two threads: the monotonic ones never go back and never leap (they
 * go on from where they were), the thread's and process's CPU time does not grow faster than time.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define LEAP 30000000000u /* a restart on a busy machine may take its time, but time does not pass while nothing runs */

static volatile int stop;

static uint64_t by_syscall(clockid_t clock)
{
	struct timespec ts;

	CHECK(syscall(SYS_clock_gettime, clock, &ts) == 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void step(uint64_t *last, uint64_t now)
{
	CHECK(now >= *last);
	CHECK(now - *last < LEAP);
	*last = now;
}

static void *watch(void *arg)
{
	uint64_t mono = feature_now(CLOCK_MONOTONIC), boot = feature_now(CLOCK_BOOTTIME);
	uint64_t coarse = feature_now(CLOCK_MONOTONIC_COARSE);
	struct timeval tv;

	while (!stop) {
		uint64_t real;

		step(&mono, feature_now(CLOCK_MONOTONIC));
		step(&mono, by_syscall(CLOCK_MONOTONIC));
		step(&mono, feature_now(CLOCK_MONOTONIC));
		step(&boot, feature_now(CLOCK_BOOTTIME));
		step(&boot, by_syscall(CLOCK_BOOTTIME));
		step(&coarse, feature_now(CLOCK_MONOTONIC_COARSE));
		real = feature_now(CLOCK_REALTIME);
		CHECK(gettimeofday(&tv, NULL) == 0);
		CHECK((uint64_t)tv.tv_sec >= real / 1000000000 && (uint64_t)tv.tv_sec >= 1700000000);
		CHECK(time(NULL) >= 1700000000);
	}
	return arg;
}

int main(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	feature_ready();
	while (feature_step())
		feature_work();
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
