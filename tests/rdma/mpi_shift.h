/* SPDX-License-Identifier: BSD-2-Clause */
/* What mpi_check.c and mpi_ring.c share: who this rank is, and messages around the ring of all ranks, each of which is checked. */
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int rank, ranks;

#define CHECK(x)                                                                                 \
	do {                                                                                     \
		if (!(x)) {                                                                      \
			fprintf(stderr, "rank %d, line %d: %s is false\n", rank, __LINE__, #x); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                            \
		}                                                                                \
	} while (0)

static void fill(unsigned char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 8));
}

static void check(const unsigned char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		CHECK(p[i] == (unsigned char)(seed * 31 + i * 7 + (i >> 8)));
}

/* From the left, to the right, @n bytes; @who tells threads apart. */
static void shift(unsigned char *out, unsigned char *in, int n, int who)
{
	int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, got;
	MPI_Request request[2];
	MPI_Status status[2];

	fill(out, (size_t)n, (unsigned int)(rank + n + who));
	memset(in, 0, (size_t)n);
	MPI_Irecv(in, n, MPI_BYTE, left, who, MPI_COMM_WORLD, &request[0]);
	MPI_Isend(out, n, MPI_BYTE, right, who, MPI_COMM_WORLD, &request[1]);
	MPI_Waitall(2, request, status);
	MPI_Get_count(&status[0], MPI_BYTE, &got);
	CHECK(got == n && status[0].MPI_SOURCE == left);
	check(in, (size_t)n, (unsigned int)(left + n + who));
}
