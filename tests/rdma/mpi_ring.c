/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that goes on until the file that its argument names is there: sums over all ranks, and messages of many sizes around a ring, each
 * checked as it comes. Rank 0 says the running sum now and then. At the end the sum of all that was received has to be what arithmetic
 * says it is. Says "N ranks are content" and ends with 0, or says what is wrong and ends the job.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGEST (1 << 18)
#define EACH 200 /* rounds between two words of rank 0 */

static int rank, ranks;
static unsigned char out[LARGEST], in[LARGEST];

#define CHECK(x)                                                                                 \
	do {                                                                                     \
		if (!(x)) {                                                                      \
			fprintf(stderr, "rank %d, line %d: %s is false\n", rank, __LINE__, #x); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                            \
		}                                                                                \
	} while (0)

static unsigned char byte_of(int from, long round, int i)
{
	return (unsigned char)(from * 31 + round * 7 + i + (i >> 8));
}

static void shift(long round)
{
	int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, n = 1 << (round % 19), got;
	MPI_Status status;

	for (int i = 0; i < n; i++)
		out[i] = byte_of(rank, round, i);
	MPI_Sendrecv(out, n, MPI_BYTE, right, 1, in, LARGEST, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &got);
	CHECK(got == n);
	for (int i = 0; i < n; i++)
		CHECK(in[i] == byte_of(left, round, i));
}

int main(int argc, char **argv)
{
	long long total = 0, mine, sum;
	long round = 0;
	int stop = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(argc == 2);
	for (; !stop; round++) {
		mine = round * (rank + 1);
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
		CHECK(sum == round * ranks * (ranks + 1) / 2);
		total += sum;
		shift(round);
		if (round % EACH)
			continue;
		stop = rank == 0 && access(argv[1], F_OK) == 0;
		MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (rank == 0)
			printf("sum %lld\n", total), fflush(stdout);
	}
	CHECK(total == (long long)round * (round - 1) / 2 * ranks * (ranks + 1) / 2);
	if (rank == 0)
		printf("%d ranks are content\n", ranks);
	MPI_Finalize();
	return 0;
}
