/* SPDX-License-Identifier: BSD-2-Clause */
/* 1,000 threads, each with its id, its name and a counter of its own; one by one each is woken, and answers. */
#include "feature.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#define THREADS 1000
#define AWAKE 20 /* a step */

static struct one {
	pthread_t thread;
	sem_t wake;
	pid_t tid;
	uint64_t rounds;
} all[THREADS];
static __thread uint64_t mine;
static sem_t answer;
static atomic_int over;

static void *work(void *arg)
{
	struct one *o = arg;
	char name[16], now[16];

	snprintf(name, sizeof(name), "thread-%d", (int)(o - all));
	CHECK(pthread_setname_np(pthread_self(), name) == 0);
	o->tid = gettid();
	for (;;) {
		CHECK(sem_post(&answer) == 0);
		while (sem_wait(&o->wake) != 0)
			CHECK(errno == EINTR);
		if (atomic_load(&over))
			return o;
		CHECK(gettid() == o->tid && prctl(PR_GET_NAME, now) == 0 && strcmp(name, now) == 0 && mine == o->rounds);
		mine = ++o->rounds;
	}
}

int main(void)
{
	pthread_attr_t attr;
	uint64_t step = 0;
	void *ret;

	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 64 << 10) == 0 && sem_init(&answer, 0, 0) == 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK(sem_init(&all[i].wake, 0, 0) == 0);
		if (pthread_create(&all[i].thread, &attr, work, &all[i]) != 0)
			feature_skip("a user may not have 1,000 threads here (ulimit -u)");
		CHECK(sem_wait(&answer) == 0);
	}
	feature_ready();
	do {
		for (int i = 0; i < AWAKE; i++, step++)
			CHECK(sem_post(&all[step % THREADS].wake) == 0 && sem_wait(&answer) == 0);
		feature_work();
	} while (feature_step());
	atomic_store(&over, 1);
	for (int i = 0; i < THREADS; i++) {
		CHECK(all[i].rounds == step / THREADS + ((uint64_t)i < step % THREADS) && sem_post(&all[i].wake) == 0);
		CHECK(pthread_join(all[i].thread, &ret) == 0 && ret == &all[i]);
	}
	return 0;
}
