/* SPDX-License-Identifier: BSD-2-Clause */
/* Many threads that compute, each with thread-local data of every kind and its own chain. */
#include "feature.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

enum { THREADS = 24 };

static __thread uint64_t tls_count;
static __thread char tls_name[64] = "unset";
static pthread_key_t key;
static volatile int stop;
static pthread_barrier_t started;

static void *work(void *arg)
{
	uintptr_t id = (uintptr_t)arg;
	struct chain chain = { 0 };
	char name[64];

	snprintf(name, sizeof(name), "thread %lu", (unsigned long)id);
	strcpy(tls_name, name);
	CHECK(pthread_setspecific(key, (void *)(id + 1000)) == 0);
	pthread_barrier_wait(&started);
	do {
		chain_step(&chain, 1000 + (unsigned int)id);
		tls_count++;
		CHECK(pthread_getspecific(key) == (void *)(id + 1000));
		CHECK(chain.length == tls_count * (1000 + id));
		CHECK(strcmp(tls_name, name) == 0);
		errno = (int)id;
		chain_check(&chain);
		CHECK(errno == (int)id);
	} while (!stop);
	return (void *)(uintptr_t)tls_count;
}

int main(void)
{
	pthread_t threads[THREADS];
	void *count;

	/* libseccomp's question whether there are filters: it does not end the process */
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
	CHECK(pthread_key_create(&key, NULL) == 0);
	CHECK(pthread_barrier_init(&started, NULL, THREADS + 1) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	pthread_barrier_wait(&started);
	feature_ready();
	while (feature_step())
		feature_work();
	stop = 1;
	for (int i = 0; i < THREADS; i++) {
		CHECK(pthread_join(threads[i], &count) == 0);
		CHECK(count != NULL);
	}
	return 0;
}
