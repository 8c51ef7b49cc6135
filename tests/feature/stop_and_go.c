/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that wait in the kernel with a limit of time, in a process that another one stops and lets go on all the time: their calls say no EINTR, and take as long as was asked for. */
#include "feature.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NAP 60000000l /* ns */

static const struct timespec nap = { 0, NAP };
static volatile int stop;

static void sleeps(void)
{
	CHECK(nanosleep(&nap, NULL) == 0);
}

static void sleeps_with_rest(void)
{
	struct timespec left = nap;

	CHECK(nanosleep(&left, &left) == 0);
}

static void sleeps_on_clock(void)
{
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL) == 0);
}

static void polls(void)
{
	CHECK(poll(NULL, 0, NAP / 1000000) == 0);
}

static void waits_for_word(void)
{
	uint32_t word = 1;

	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &nap, NULL, 0) == -1 && errno == ETIMEDOUT);
}

static void (*const calls[])(void) = { sleeps, sleeps_with_rest, sleeps_on_clock, polls, waits_for_word };
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static void *work(void *arg)
{
	const uintptr_t call = (uintptr_t)arg;

	while (!stop) {
		uint64_t before = feature_now(CLOCK_MONOTONIC), took;

		calls[call]();
		took = feature_now(CLOCK_MONOTONIC) - before;
		if (took < NAP)
			feature_fail("call %lu took %llu ns only", (unsigned long)call, (unsigned long long)took);
	}
	return NULL;
}

static void drive(pid_t parent, int end)
{
	char byte;

	while (read(end, &byte, 1) == -1 && errno == EAGAIN) {
		CHECK(kill(parent, SIGSTOP) == 0 && kill(parent, SIGCONT) == 0);
		usleep(5000); /* in which it waits again */
	}
	_exit(0);
}

int main(void)
{
	pthread_t threads[CALLS];
	pid_t driver, self = getpid();
	int ends[2], status;

	CHECK(pipe2(ends, O_NONBLOCK) == 0 && (driver = fork()) >= 0);
	if (!driver) {
		CHECK(close(ends[1]) == 0);
		drive(self, ends[0]);
	}
	for (uintptr_t i = 0; i < CALLS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	feature_ready();
	do
		feature_work();
	while (feature_step());
	stop = 1;
	for (int i = 0; i < CALLS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(close(ends[1]) == 0 && waitpid(driver, &status, 0) == driver && status == 0);
	return 0;
}
