/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that stand lend themselves, any of them and one by its id in turns, without a pause between: none sleeps over what is asked of it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/stop_lend.h"

#define THREADS 4
#define TURNS 100000
#define EPOCH 7

static _Atomic uint32_t word = EPOCH;
static _Atomic int tids[THREADS];

static void *stand(void *arg)
{
	atomic_store((_Atomic int *)arg, gettid());
	lend_wait(&word, EPOCH);
	return NULL;
}

static int who(void *arg)
{
	*(int *)arg = gettid();
	return -3;
}

static void test_turns(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	alarm(120);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, stand, (void *)&tids[i]), 0);
		while (!atomic_load(&tids[i]))
			usleep(1000);
	}
	for (int turn = 0; turn < TURNS; turn++) {
		int asked = atomic_load(&tids[turn % THREADS]), any = 0, one = 0;

		assert_int_equal(lend_run(0, who, &any), -3);
		assert_true(any && any != getpid());
		assert_int_equal(lend_run(asked, who, &one), -3);
		assert_int_equal(one, asked);
	}
	lend_end(&word);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(word, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_turns) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
