/* SPDX-License-Identifier: BSD-2-Clause */
/* An OpenSHMEM program that checks what it gets: put, get, atomics on symmetric memory. Says "N PEs are content", status 0, or 1. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS 65536

static long counter, swapped;

static int wrong(int me, int n, const long *got, const long *source)
{
	int left = (me + n - 1) % n, right = (me + 1) % n, bad = 0;
	static long back[WORDS];

	for (int i = 0; i < WORDS; i++)
		bad += got[i] != left * 1000000l + i;
	shmem_long_get(back, source, WORDS, right);
	for (int i = 0; i < WORDS; i++)
		bad += back[i] != right * 1000000l + i;
	return bad;
}

int main(void)
{
	long *source, *got, before, seen = -1;
	int me, n, bad = 0;

	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	source = shmem_malloc(WORDS * sizeof(*source));
	got = shmem_malloc(WORDS * sizeof(*got));
	for (int i = 0; i < WORDS; i++)
		source[i] = me * 1000000l + i;
	shmem_barrier_all();
	shmem_long_put(got, source, WORDS, (me + 1) % n);
	for (int i = 0; i < 500; i++) {
		before = shmem_long_atomic_fetch_add(&counter, 1, 0);
		bad += before <= seen;
		seen = before;
	}
	while (shmem_long_atomic_compare_swap(&swapped, me, me + 1, 0) != me)
		;
	shmem_barrier_all();
	bad += wrong(me, n, got, source);
	if (!me)
		bad += counter != 500l * n || swapped != n;
	if (bad)
		printf("PE %d: %d values are wrong\n", me, bad);
	else if (!me)
		printf("%d PEs are content\n", n);
	shmem_barrier_all();
	shmem_finalize();
	return bad != 0;
}
