/* SPDX-License-Identifier: BSD-2-Clause */
/* What one memcpy between two processes takes. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

#define COPIES_MAX 501

double device_copy(size_t size)
{
	size_t copies = bench_repeats(size, COPIES_MAX), i;
	double took[COPIES_MAX];
	char *from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (from == MAP_FAILED || to == MAP_FAILED) {
		perror("mmap");
		_exit(1);
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
	munmap(from, size);
	munmap(to, size);
	return bench_median(took, copies);
}
