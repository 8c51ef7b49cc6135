/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that checks what it gets: messages of all sizes around a ring, collective operations, one-sided access with its atomics, and four
 * threads a rank that send at once. With "no-swap" there is no compare-and-swap among these: that of Open MPI 4.1's osc rdma over
 * openib dereferences NULL, whatever the device. With "until FINISH PROGRESS" the collective and one-sided operations and threads are repeated until there is a
 * file FINISH, and each round makes PROGRESS a byte longer. Says "N ranks are content" and ends with 0, or says what is wrong and ends the job.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "mpi_shift.h"

#define THREADS 4
#define LARGEST (4 << 20)
#define WORDS 4096

static int swaps = 50;

static void messages(void)
{
	unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);

	CHECK(out && in);
	shift(out, in, 0, 0);
	for (int n = 1; n <= LARGEST; n = n < 1 << 14 ? n * 3 : n * 4)
		for (int i = 0; i < 5; i++)
			shift(out, in, n, 0);
	shift(out, in, LARGEST, 0);
	free(out);
	free(in);
}

static void collectives(void)
{
	long mine[64], all[64 * 64], sum;

	for (int round = 0; round < 50; round++) {
		long x = rank + round;

		MPI_Allreduce(&x, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		CHECK(sum == (long)ranks * round + (long)ranks * (ranks - 1) / 2);
		for (int i = 0; i < ranks; i++)
			mine[i] = rank * 1000 + i + round;
		MPI_Alltoall(mine, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
		for (int i = 0; i < ranks; i++)
			CHECK(all[i] == i * 1000 + rank + round);
		x = rank == round % ranks ? 4711 + round : 0;
		MPI_Bcast(&x, 1, MPI_LONG, round % ranks, MPI_COMM_WORLD);
		CHECK(x == 4711 + round);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void counters(MPI_Win win)
{
	long one = 1, before, seen = -1;

	MPI_Win_lock_all(0, win);
	for (int i = 0; i < 200; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		CHECK(before > seen);
		seen = before;
	}
	for (int i = 0; i < swaps; i++) { /* the same by compare-and-swap */
		long expected = 0, next, found;

		for (;;) {
			next = expected + 1;
			MPI_Compare_and_swap(&next, &expected, &found, MPI_LONG, 0, 1, win);
			MPI_Win_flush(0, win);
			if (found == expected)
				break;
			expected = found;
		}
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void one_sided(void)
{
	long *base, *from = malloc(WORDS * sizeof(*from)), found[2];
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	MPI_Win win;

	/* Not MPI_Win_allocate: its memory may be shared on a host, and no device have a part in it. */
	base = calloc(2 * WORDS, sizeof(*base));
	CHECK(base && from);
	MPI_Win_create(base, 2 * WORDS * sizeof(*base), sizeof(*base), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Barrier(MPI_COMM_WORLD);
	counters(win);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(found, 2, MPI_LONG, 0, 0, 2, MPI_LONG, win);
	MPI_Win_unlock(0, win);
	CHECK(found[0] == 200l * ranks && found[1] == (long)swaps * ranks);
	for (int i = 0; i < WORDS; i++)
		from[i] = rank * 100000l + i;
	MPI_Win_fence(0, win);
	MPI_Put(from, WORDS, MPI_LONG, right, WORDS, WORDS, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		CHECK(base[WORDS + i] == left * 100000l + i);
	MPI_Win_fence(0, win);
	MPI_Accumulate(from, WORDS, MPI_LONG, right, WORDS, WORDS, MPI_LONG, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		CHECK(base[WORDS + i] == 2 * (left * 100000l + i));
	MPI_Win_free(&win);
	free(base);
	free(from);
}

static void *thread(void *arg)
{
	int who = 100 + *(int *)arg;
	unsigned char *out = malloc(1 << 17), *in = malloc(1 << 17);

	CHECK(out && in);
	for (int i = 0; i < 100; i++)
		shift(out, in, i % 10 ? i * 13 : 1 << 17, who);
	free(out);
	free(in);
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];
	int number[THREADS];

	for (int i = 0; i < THREADS; i++) {
		number[i] = i;
		CHECK(!pthread_create(&t[i], NULL, thread, &number[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

/* The first rank looks, and all know. */
static int goes_on(const char *finish, const char *progress)
{
	int go = 1;

	if (!rank) {
		FILE *f = fopen(progress, "a");

		CHECK(f && fputc('.', f) == '.' && !fclose(f));
		go = access(finish, F_OK) != 0;
	}
	MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return go;
}

int main(int argc, char **argv)
{
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(ranks <= 64);
	if (argc == 2)
		swaps = 0;
	messages();
	do {
		collectives();
		one_sided();
		if (provided == MPI_THREAD_MULTIPLE)
			threads();
	} while (argc > 3 && goes_on(argv[2], argv[3]));
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks are content%s\n", ranks, provided == MPI_THREAD_MULTIPLE ? ", with threads" : "");
	MPI_Finalize();
	return 0;
}
