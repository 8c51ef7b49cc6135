/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program of windows and threads (MPI_THREAD_MULTIPLE): while three threads of each rank pass messages around the ring of all ranks, its main
 * thread reaches into the others' memory: put, get and accumulate under shared and exclusive locks, fetch-and-add, compare-and-swap; and puts between
 * fences.
 *
 *   windows BLOCKS
 *
 * Each checks what it can; all numbers are whole ones, so that their sums do not depend on who came first. The first rank says "step N" and the checksum of all memory and messages
 * at the end of each block, and "result" with the last one. What is wrong ends the job.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "../rdma/mpi_shift.h"

#define THREADS 3
#define ROUNDS 20 /* of a block */
#define WORDS 1024
#define MESSAGE 32768 /* bytes */
#define AT(field) ((MPI_Aint)offsetof(struct part, field))

/* What others reach of a rank. */
struct part {
	long sums[WORDS]; /* accumulated into by all */
	long from[64]; /* a word a rank: what that one has put */
	long halo[WORDS]; /* put between fences by the left one */
	long count, swapped, guarded;
};

static struct part *mine;
static MPI_Win win;

static struct thread {
	pthread_t id;
	int message; /* the next one: each has a tag, and so a content, of its own */
	unsigned long sum;
	unsigned char out[MESSAGE], in[MESSAGE];
} threads[THREADS];

static unsigned long mixed(unsigned long sum, const void *bytes, size_t n)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ b[i]) * 1099511628211ul;
	return sum;
}

/* From short ones to those that take another protocol. */
static void *messages(void *arg)
{
	struct thread *t = arg;

	for (int round = 0; round < ROUNDS; round++) {
		int n = 8 << (round + t->message) % 13;

		shift(t->out, t->in, n, t->message);
		t->message += THREADS;
		t->sum = mixed(t->sum, t->in, (size_t)n);
	}
	return NULL;
}

/* Into another rank's sums and its word for this one, and back. */
static void shared_lock(long step)
{
	static long add[WORDS];
	int target = (int)((rank + step) % ranks);
	int n = (int)(step * 37 % WORDS) + 1;
	long back = -1, put = step * 100 + rank;

	for (int i = 0; i < n; i++)
		add[i] = step + rank * 7 + i;
	MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
	MPI_Accumulate(add, n, MPI_LONG, target, AT(sums), n, MPI_LONG, MPI_SUM, win);
	MPI_Put(&put, 1, MPI_LONG, target, AT(from) + rank * (MPI_Aint)sizeof(long), 1, MPI_LONG, win);
	MPI_Win_flush(target, win);
	MPI_Get(&back, 1, MPI_LONG, target, AT(from) + rank * (MPI_Aint)sizeof(long), 1, MPI_LONG, win);
	MPI_Win_unlock(target, win);
	CHECK(back == put);
}

/* A counter of the first rank: each one sees it grow. */
static void count(void)
{
	static long seen = -1;
	long one = 1, before;

	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, AT(count), MPI_SUM, win);
	MPI_Win_unlock(0, win);
	CHECK(before > seen);
	seen = before;
}

/* A word of the last rank's that grows by who swaps it first. */
static void swaps(void)
{
	long expected = 0, next, found;

	MPI_Win_lock(MPI_LOCK_SHARED, ranks - 1, 0, win);
	for (;; expected = found) {
		next = expected + rank + 1;
		MPI_Compare_and_swap(&next, &expected, &found, MPI_LONG, ranks - 1, AT(swapped), win);
		MPI_Win_flush(ranks - 1, win);
		if (found == expected)
			break;
	}
	MPI_Win_unlock(ranks - 1, win);
}

/* Read and written by one at a time. */
static void exclusive_lock(long step)
{
	int target = (int)((rank + 2 * step) % ranks);
	long value;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
	MPI_Get(&value, 1, MPI_LONG, target, AT(guarded), 1, MPI_LONG, win);
	MPI_Win_flush(target, win);
	value += step * (rank + 1);
	MPI_Put(&value, 1, MPI_LONG, target, AT(guarded), 1, MPI_LONG, win);
	MPI_Win_unlock(target, win);
}

static void fences(long step)
{
	static long out[WORDS];
	int left = (rank + ranks - 1) % ranks;

	for (int i = 0; i < WORDS; i++)
		out[i] = step * 1000 + rank + i;
	MPI_Win_fence(0, win);
	MPI_Put(out, WORDS, MPI_LONG, (rank + 1) % ranks, AT(halo), WORDS, MPI_LONG, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		CHECK(mine->halo[i] == step * 1000 + left + i);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

static void block(long number)
{
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i].id, NULL, messages, &threads[i]));
	for (long step = number * ROUNDS; step < (number + 1) * ROUNDS; step++) {
		shared_lock(step);
		count();
		swaps();
		exclusive_lock(step);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	fences(number);
}

/* Of all ranks' parts, as the first one gets them, and of their messages. */
static unsigned long whole(void)
{
	static struct part part;
	unsigned long sum = 14695981039346656037ul, sums[64];

	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 1; i < THREADS; i++)
		threads[0].sum = mixed(threads[0].sum, &threads[i].sum, sizeof(sum));
	MPI_Gather(&threads[0].sum, 1, MPI_UNSIGNED_LONG, sums, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
	for (int i = 0; !rank && i < ranks; i++) {
		MPI_Win_lock(MPI_LOCK_SHARED, i, 0, win);
		MPI_Get(&part, sizeof(part), MPI_BYTE, i, 0, sizeof(part), MPI_BYTE, win);
		MPI_Win_unlock(i, win);
		sum = mixed(mixed(sum, &part, sizeof(part)), &sums[i], sizeof(sum));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	return sum;
}

int main(int argc, char **argv)
{
	long blocks = argc > 1 ? atol(argv[1]) : 10;
	unsigned long sum = 0;
	struct timespec a, b;
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	mine = calloc(1, sizeof(*mine)); /* not of MPI_Win_allocate: that may be shared memory, without a device */
	CHECK(provided == MPI_THREAD_MULTIPLE && ranks <= 64 && mine);
	MPI_Win_create(mine, sizeof(*mine), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int i = 0; i < THREADS; i++)
		threads[i].message = i;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (long n = 0; n < blocks; n++) {
		block(n);
		sum = whole();
		if (!rank) {
			printf("step %ld %016lx\n", n + 1, sum);
			fflush(stdout);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (!rank)
		printf("seconds %.2f\nresult %016lx\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9, sum);
	fflush(stdout);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
