/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that wait in the kernel with a limit of time, each in another call. Each call takes as long as was asked for on
 * CLOCK_MONOTONIC, not less, and never says EINTR.
 */
#include "feature.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <threads.h>

#define NAP 30000000l /* ns */

static int quiet[2], pair[2], nothing;
static sem_t sem;
static uint32_t futex_word;
static volatile int stop;
static const struct timespec nap = { 0, NAP };

static void timed_nanosleep(void)
{
	CHECK(nanosleep(&nap, NULL) == 0);
}

static void timed_clock(void)
{
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL) == 0);
}

static void timed_until(void)
{
	uint64_t end = feature_now(CLOCK_MONOTONIC) + NAP;
	struct timespec ts = { (time_t)(end / 1000000000), (long)(end % 1000000000) };

	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == 0);
}

static void timed_usleep(void)
{
	CHECK(usleep(NAP / 1000) == 0);
}

static void timed_poll(void)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	CHECK(poll(&p, 1, NAP / 1000000) == 0);
}

/* What a program built with _FORTIFY_SOURCE calls. */
extern int __poll_chk(struct pollfd *, nfds_t, int, size_t), __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static void timed_fortified(void)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	CHECK(__poll_chk(&p, 1, NAP / 1000000 / 2, sizeof(p)) == 0);
	CHECK(__ppoll_chk(&p, 1, &(struct timespec){ 0, NAP / 2 }, NULL, sizeof(p)) == 0);
}

static void timed_epoll(void)
{
	struct epoll_event event;

	CHECK(epoll_pwait(nothing, &event, 1, NAP / 1000000 / 2, NULL) == 0);
	CHECK(epoll_pwait2(nothing, &event, 1, &(struct timespec){ 0, NAP / 2 }, NULL) == 0);
}

static void timed_thread_sleep(void)
{
	CHECK(thrd_sleep(&nap, NULL) == 0);
}

static void timed_ppoll(void)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	CHECK(ppoll(&p, 1, &nap, NULL) == 0);
}

static void timed_select(void)
{
	struct timeval tv = { 0, NAP / 1000 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(quiet[0], &set);
	CHECK(select(quiet[0] + 1, &set, NULL, NULL, &tv) == 0);
}

static void timed_pselect(void)
{
	CHECK(pselect(0, NULL, NULL, NULL, &nap, NULL) == 0);
}

/* As libc waits: until a moment. */
static void timed_futex(void)
{
	uint64_t end = feature_now(CLOCK_MONOTONIC) + NAP;
	struct timespec ts = { (time_t)(end / 1000000000), (long)(end % 1000000000) };

	CHECK(syscall(SYS_futex, &futex_word, FUTEX_WAIT_BITSET_PRIVATE, 0, &ts, NULL, FUTEX_BITSET_MATCH_ANY) == -1 &&
	      errno == ETIMEDOUT);
}

static void timed_sem(void)
{
	uint64_t end = feature_now(CLOCK_MONOTONIC) + NAP;
	struct timespec ts = { (time_t)(end / 1000000000), (long)(end % 1000000000) };

	CHECK(sem_clockwait(&sem, CLOCK_MONOTONIC, &ts) == -1 && errno == ETIMEDOUT);
}

static void timed_recv(void)
{
	char c;

	CHECK(recv(pair[0], &c, 1, 0) == -1 && errno == EAGAIN); /* SO_RCVTIMEO */
}

static void (*const calls[])(void) = { timed_nanosleep, timed_clock, timed_until, timed_usleep, timed_poll, timed_ppoll, timed_select, timed_pselect,
				       timed_futex, timed_sem, timed_recv, timed_fortified, timed_epoll, timed_thread_sleep };
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static void *work(void *arg)
{
	uintptr_t call = (uintptr_t)arg;

	while (!stop) {
		uint64_t before = feature_now(CLOCK_MONOTONIC);
		uint64_t took;

		calls[call]();
		took = feature_now(CLOCK_MONOTONIC) - before;
		if (took < NAP - 1000000) /* the socket's limit counts in ticks */
			feature_fail("call %lu took %llu ns only", (unsigned long)call, (unsigned long long)took);
	}
	return NULL;
}

int main(void)
{
	struct timeval tv = { 0, NAP / 1000 };
	pthread_t threads[CALLS];

	CHECK((nothing = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	CHECK(pipe(quiet) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && sem_init(&sem, 0, 0) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	for (uintptr_t i = 0; i < CALLS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	feature_ready();
	while (feature_step())
		timed_poll();
	stop = 1;
	for (int i = 0; i < CALLS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
