/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that goes on until the file that its argument names is there: sums over all ranks, and messages of many sizes around a ring, each
 * checked as it comes. Rank 0 says the running sum now and then. At the end the sum of all that was received has to be what arithmetic
 * says it is. Says "N ranks are content" and ends with 0, or says what is wrong and ends the job.
 */
#include <unistd.h>

#include "mpi_shift.h"

#define LARGEST (1 << 18)
#define EACH 200 /* rounds between two words of rank 0 */

static unsigned char out[LARGEST], in[LARGEST];

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
		shift(out, in, 1 << round % 19, (int)(round % 1000));
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
