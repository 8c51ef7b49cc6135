/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads are made and end all the time: joined, detached, cancelled, by several threads at once. */
#include "feature.h"

#include <pthread.h>

enum { STORMS = 3, BATCH = 6 };

static volatile int stop;
static int detached_alive;
static uint64_t cleaned;

static void clean(void *arg)
{
	__atomic_add_fetch((uint64_t *)arg, 1, __ATOMIC_RELAXED);
}

static void *brief(void *arg)
{
	char *mem = malloc(100 + (uintptr_t)arg);

	CHECK(mem);
	memset(mem, 1, 100);
	free(mem);
	return (void *)((uintptr_t)arg * 3);
}

static void *brief_detached(void *arg)
{
	__atomic_sub_fetch(&detached_alive, 1, __ATOMIC_RELEASE);
	return arg;
}

static void *until_cancelled(void *arg)
{
	pthread_cleanup_push(clean, &cleaned);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return arg;
}

static void *storm(void *arg)
{
	pthread_t threads[BATCH], detached;
	uint64_t *rounds = arg;
	void *ret;

	while (!stop) {
		for (uintptr_t i = 0; i < BATCH - 1; i++)
			CHECK(pthread_create(&threads[i], NULL, brief, (void *)i) == 0);
		CHECK(pthread_create(&threads[BATCH - 1], NULL, until_cancelled, NULL) == 0);
		__atomic_add_fetch(&detached_alive, 1, __ATOMIC_ACQUIRE);
		CHECK(pthread_create(&detached, NULL, brief_detached, NULL) == 0);
		CHECK(pthread_detach(detached) == 0);
		for (uintptr_t i = 0; i < BATCH - 1; i++) {
			CHECK(pthread_join(threads[i], &ret) == 0);
			CHECK(ret == (void *)(i * 3));
		}
		CHECK(pthread_cancel(threads[BATCH - 1]) == 0);
		CHECK(pthread_join(threads[BATCH - 1], &ret) == 0);
		CHECK(ret == PTHREAD_CANCELED);
		++*rounds;
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[STORMS];
	uint64_t rounds[STORMS] = { 0 }, sum = 0;

	for (int i = 0; i < STORMS; i++)
		CHECK(pthread_create(&threads[i], NULL, storm, &rounds[i]) == 0);
	feature_ready();
	while (feature_step())
		feature_work();
	stop = 1;
	for (int i = 0; i < STORMS; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
		sum += rounds[i];
	}
	while (__atomic_load_n(&detached_alive, __ATOMIC_ACQUIRE))
		;
	CHECK(sum == cleaned);
	return 0;
}
