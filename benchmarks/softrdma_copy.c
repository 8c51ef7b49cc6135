/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one memcpy between two processes reaches: the writer copies messages of a size from its own memory into memory shared
 * with a second process that touches every page of it first.
 * Usage: softrdma_copy [BYTES]. Prints one line, one number: MB/s (10^6 bytes), the median copy's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_time.h"

#define COPIES_MAX 1001

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoull(argv[1], NULL, 0) : 1u << 20;
	size_t copies = bench_repeats(size, COPIES_MAX), i;
	static double took[COPIES_MAX];
	char *from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (!size || from == MAP_FAILED || to == MAP_FAILED) {
		fprintf(stderr, "softrdma_copy: no memory for %zu bytes\n", size);
		return 1;
	}
	pid = fork();
	if (!pid) {
		memset(to, 1, size);
		_exit(0);
	}
	memset(from, 2, size);
	waitpid(pid, NULL, 0);
	memcpy(to, from, size);
	for (i = 0; i < copies; i++) {
		double start = bench_now();

		memcpy(to, from, size);
		__asm__ volatile("" ::: "memory");
		took[i] = bench_now() - start;
	}
	printf("%.1f\n", (double)size / bench_median(took, copies) / 1e6);
	return 0;
}
