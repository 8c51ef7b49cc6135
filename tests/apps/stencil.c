/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An OpenSHMEM program: heat that spreads over a plane in stripes a PE. Each step puts its halos into its neighbours' memory, counts them in by an
 * atomic, waits for what they put, and has the largest change of all PEs; each tenth adds to what the last PE has, under a lock. The last line,
 * "result", holds what is to be the same from run to run.
 */
#include <math.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE 512

static double change, largest, work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long sync_of[SHMEM_REDUCE_SYNC_SIZE];
static long arrived; /* halos that the neighbours have put */
static long lock, added; /* the last PE's */

static double *plane[2];
static int me, pes, rows;

static double *row(int which, int number)
{
	return plane[which] + (size_t)number * SIZE;
}

/* To the neighbours' edges; returns when theirs are here. */
static void halos(int which, long step)
{
	int neighbours = (me > 0) + (me + 1 < pes);

	if (me > 0)
		shmem_double_put(row(which, rows + 1), row(which, 1), SIZE, me - 1);
	if (me + 1 < pes)
		shmem_double_put(row(which, 0), row(which, rows), SIZE, me + 1);
	shmem_fence();
	if (me > 0)
		shmem_long_atomic_inc(&arrived, me - 1);
	if (me + 1 < pes)
		shmem_long_atomic_inc(&arrived, me + 1);
	shmem_long_wait_until(&arrived, SHMEM_CMP_GE, neighbours * (step + 1));
}

/* Lost, if two of them were at it at once. */
static void add_locked(long step)
{
	shmem_set_lock(&lock);
	shmem_long_p(&added, shmem_long_g(&added, pes - 1) + step * (me + 1), pes - 1);
	shmem_quiet();
	shmem_clear_lock(&lock);
}

static void spread(int from, int to)
{
	change = 0;
	for (int y = 1; y <= rows; y++) {
		const double *here = row(from, y), *up = row(from, y - 1), *down = row(from, y + 1);
		double *new = row(to, y);

		for (int x = 1; x < SIZE - 1; x++) {
			new[x] = here[x] + 0.2 * (up[x] + down[x] + here[x - 1] + here[x + 1] - 4 * here[x]);
			change = fmax(change, fabs(new[x] - here[x]));
		}
	}
}

static unsigned long mixed(unsigned long sum, const void *bytes, size_t n)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ b[i]) * 1099511628211ul;
	return sum;
}

static void begin(void)
{
	rows = SIZE / pes;
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync_of[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < 2; i++) {
		plane[i] = shmem_malloc((rows + 2) * SIZE * sizeof(double));
		memset(plane[i], 0, (rows + 2) * SIZE * sizeof(double));
	}
	srand(4711 + me);
	for (int y = 1; y <= rows; y++)
		for (int x = 1; x < SIZE - 1; x++)
			*(row(0, y) + x) = rand() / (double)RAND_MAX;
	shmem_barrier_all();
}

/* Of all planes, read by the first PE. */
static unsigned long whole(int which)
{
	double *other = malloc(rows * SIZE * sizeof(*other));
	unsigned long sum = 14695981039346656037ul;

	for (int pe = 0; pe < pes; pe++) {
		shmem_double_get(other, row(which, 1), rows * SIZE, pe);
		sum = mixed(sum, other, rows * SIZE * sizeof(*other));
	}
	free(other);
	return sum;
}

int main(int argc, char **argv)
{
	long steps = argc > 1 ? atol(argv[1]) : 1000;
	unsigned long changes = 14695981039346656037ul;
	struct timespec a, b;

	shmem_init();
	me = shmem_my_pe();
	pes = shmem_n_pes();
	begin();
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (long step = 0; step < steps; step++) {
		halos(step & 1, step);
		spread(step & 1, !(step & 1));
		if (step % 10 == 9)
			add_locked(step);
		shmem_double_max_to_all(&largest, &change, 1, 0, 0, pes, work, sync_of);
		changes = mixed(changes, &largest, sizeof(largest));
		shmem_barrier_all();
		if (!me && step % 100 == 99) {
			printf("step %ld %a\n", step + 1, largest);
			fflush(stdout);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (!me)
		printf("seconds %.2f\nresult %016lx %016lx %ld\n", b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9, changes, whole(steps & 1), shmem_long_g(&added, pes - 1));
	fflush(stdout);
	shmem_barrier_all();
	shmem_finalize();
	return 0;
}
