/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with megabytes of thread-local memory of its own, as threadprivate arrays of Fortran are: it lies between a thread's pointer and what libraries have for the thread, in the
 * agent's threads, too. Each of the program's threads compares all of its own in each step.
 */
#include "feature.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SIZE = 1116000 /* libraries behind it are where a thread of the agent with 64 KiB would have had the guard of its stack */, THREADS = 3, STRIDE = 997 };

static __thread unsigned char own[SIZE] __attribute__((aligned(64)));
static __thread int begun = 42; /* with a value */
static _Atomic unsigned long turn, done;

static void make(unsigned char with)
{
	for (int i = 0; i < SIZE; i += STRIDE)
		own[i] = (unsigned char)(with + i);
	begun = 42 + with;
}

static void check(unsigned char with)
{
	CHECK(begun == 42 + with && (uintptr_t)own % 64 == 0);
	for (int i = 0; i < SIZE; i += STRIDE)
		CHECK(own[i] == (unsigned char)(with + i) && (i + 1 >= SIZE || own[i + 1] == 0));
}

static void *run(void *arg)
{
	const unsigned char which = (unsigned char)(uintptr_t)arg;

	CHECK(begun == 42);
	make(which);
	for (unsigned long seen = 0;; seen++) {
		while (turn == seen)
			feature_work();
		check((unsigned char)(which + seen));
		make((unsigned char)(which + seen + 1));
		done++;
	}
	return NULL;
}

int main(void)
{
	unsigned char step = 0;
	pthread_t t;

	for (uintptr_t i = 1; i <= THREADS; i++)
		CHECK(pthread_create(&t, NULL, run, (void *)(10 * i)) == 0);
	make(0);
	feature_ready();
	do {
		check(step);
		make(++step);
		turn++;
		while (done < turn * THREADS)
			feature_work();
	} while (feature_step());
	return 0;
}
