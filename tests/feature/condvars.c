/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Condition variables in mid-wait: two threads that hand a token to each other, one that waits from the beginning to the
 * end, and timed waits, which end when they should.
 */
#include "feature.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t token_moved = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int token, stop, waiting;
static uint64_t passes;

static void *pass_token(void *arg)
{
	int me = (int)(uintptr_t)arg;

	CHECK(pthread_mutex_lock(&lock) == 0);
	while (!stop) {
		while (token != me && !stop)
			CHECK(pthread_cond_wait(&token_moved, &lock) == 0);
		token = !me;
		passes++;
		CHECK(pthread_cond_signal(&token_moved) == 0);
	}
	CHECK(pthread_cond_broadcast(&token_moved) == 0);
	CHECK(pthread_mutex_unlock(&lock) == 0);
	return NULL;
}

static void *wait_long(void *arg)
{
	CHECK(pthread_mutex_lock(&lock) == 0);
	waiting = 1;
	while (!stop)
		CHECK(pthread_cond_wait(&ended, &lock) == 0);
	CHECK(pthread_mutex_unlock(&lock) == 0);
	return arg;
}

static void wait_timed(pthread_mutex_t *own, pthread_cond_t *never, clockid_t clock)
{
	uint64_t deadline = feature_now(clock) + 5000000;
	struct timespec ts = { (time_t)(deadline / 1000000000), (long)(deadline % 1000000000) };
	int err;

	CHECK(pthread_mutex_lock(own) == 0);
	do
		err = pthread_cond_clockwait(never, own, clock, &ts);
	while (err == 0); /* spurious wake-ups are allowed */
	CHECK(err == ETIMEDOUT);
	CHECK(pthread_mutex_unlock(own) == 0);
	CHECK(feature_now(clock) >= deadline);
}

int main(void)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;
	pthread_t threads[3];
	uint64_t before = 0;

	CHECK(pthread_cond_init(&never, NULL) == 0);
	CHECK(pthread_create(&threads[0], NULL, wait_long, NULL) == 0);
	while (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE))
		;
	CHECK(pthread_create(&threads[1], NULL, pass_token, (void *)0) == 0);
	CHECK(pthread_create(&threads[2], NULL, pass_token, (void *)1) == 0);
	feature_ready();
	do {
		uint64_t now;

		do {
			wait_timed(&own, &never, CLOCK_MONOTONIC);
			wait_timed(&own, &never, CLOCK_REALTIME);
			CHECK(pthread_mutex_lock(&lock) == 0);
			now = passes;
			CHECK(pthread_mutex_unlock(&lock) == 0);
		} while (now == before); /* the token moves on, when the machine lets it */
		before = now;
	} while (feature_step());
	CHECK(pthread_mutex_lock(&lock) == 0);
	stop = 1;
	CHECK(pthread_cond_broadcast(&ended) == 0);
	CHECK(pthread_cond_broadcast(&token_moved) == 0);
	CHECK(pthread_mutex_unlock(&lock) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
