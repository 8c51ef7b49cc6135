/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of every kind, some of them held all the time by a thread that waits: recursive (depth 3), error-checking,
 * robust (its holder ends without unlocking), priority-inheriting with a waiter in the kernel, read-write, spin.
 */
#include "feature.h"

#include <pthread.h>

enum { CONTENDERS = 4 };

static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive, checked, robust, inheriting;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t held, release;
static volatile int stop, pi_got;
static uint64_t shared_count, spin_count;

static void mutex_make(pthread_mutex_t *m, int type, int is_robust, int protocol)
{
	pthread_mutexattr_t attr;

	CHECK(pthread_mutexattr_init(&attr) == 0);
	CHECK(pthread_mutexattr_settype(&attr, type) == 0);
	CHECK(pthread_mutexattr_setrobust(&attr, is_robust) == 0);
	CHECK(pthread_mutexattr_setprotocol(&attr, protocol) == 0);
	CHECK(pthread_mutex_init(m, &attr) == 0);
}

static void *contend(void *arg)
{
	uint64_t *count = arg;

	while (!stop) {
		CHECK(pthread_mutex_lock(&contended) == 0);
		shared_count++;
		CHECK(pthread_mutex_unlock(&contended) == 0);
		CHECK(pthread_spin_lock(&spin) == 0);
		spin_count++;
		CHECK(pthread_spin_unlock(&spin) == 0);
		CHECK(pthread_rwlock_rdlock(&rwlock) == 0);
		CHECK(pthread_rwlock_unlock(&rwlock) == 0);
		++*count;
	}
	return NULL;
}

/* Holds one of each until the end; leaves the robust one locked. */
static void *hold(void *arg)
{
	for (int i = 0; i < 3; i++)
		CHECK(pthread_mutex_lock(&recursive) == 0);
	CHECK(pthread_mutex_lock(&checked) == 0);
	CHECK(pthread_mutex_lock(&robust) == 0);
	CHECK(pthread_mutex_lock(&inheriting) == 0);
	pthread_barrier_wait(&held);
	pthread_barrier_wait(&release);
	CHECK(pthread_mutex_lock(&checked) == EDEADLK);
	CHECK(pthread_mutex_lock(&recursive) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_mutex_unlock(&recursive) == 0);
	CHECK(pthread_mutex_unlock(&recursive) == EPERM);
	CHECK(pthread_mutex_unlock(&checked) == 0);
	CHECK(pthread_mutex_unlock(&inheriting) == 0);
	return arg;
}

static void *wait_inheriting(void *arg)
{
	pthread_barrier_wait(&held);
	CHECK(pthread_mutex_lock(&inheriting) == 0);
	pi_got = 1;
	CHECK(pthread_mutex_unlock(&inheriting) == 0);
	return arg;
}

int main(void)
{
	pthread_t contenders[CONTENDERS], holder, waiter;
	uint64_t counts[CONTENDERS] = { 0 }, sum = 0;

	mutex_make(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	mutex_make(&checked, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	mutex_make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
	mutex_make(&inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
	CHECK(pthread_spin_init(&spin, 0) == 0);
	CHECK(pthread_barrier_init(&held, NULL, 3) == 0);
	CHECK(pthread_barrier_init(&release, NULL, 2) == 0);
	for (int i = 0; i < CONTENDERS; i++)
		CHECK(pthread_create(&contenders[i], NULL, contend, &counts[i]) == 0);
	CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
	CHECK(pthread_create(&waiter, NULL, wait_inheriting, NULL) == 0);
	pthread_barrier_wait(&held);
	feature_ready();
	while (feature_step()) {
		feature_work();
		CHECK(pthread_mutex_trylock(&recursive) == EBUSY);
		CHECK(pthread_mutex_trylock(&robust) == EBUSY);
		CHECK(pthread_mutex_unlock(&checked) == EPERM);
		CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
		CHECK(pthread_rwlock_unlock(&rwlock) == 0);
		CHECK(!pi_got);
	}
	pthread_barrier_wait(&release);
	CHECK(pthread_join(holder, NULL) == 0);
	CHECK(pthread_join(waiter, NULL) == 0);
	CHECK(pi_got);
	CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(&robust) == 0);
	CHECK(pthread_mutex_unlock(&robust) == 0);
	stop = 1;
	for (int i = 0; i < CONTENDERS; i++) {
		CHECK(pthread_join(contenders[i], NULL) == 0);
		sum += counts[i];
	}
	CHECK(sum == shared_count && sum == spin_count);
	return 0;
}
