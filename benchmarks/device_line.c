/* SPDX-License-Identifier: BSD-2-Clause */
/* What two processes take to tell each other something without any device. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

#define ROUNDS 2001

static cpu_set_t all;

/* The @n-th processor of those that we may use; the last if there are not so many. */
static void processor(int n)
{
	cpu_set_t one;
	int cpu, found = 0;

	for (cpu = 0; n >= 0 && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			found = cpu;
			n--;
		}
	CPU_ZERO(&one);
	CPU_SET(found, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

pid_t device_fork(void)
{
	pid_t pid;

	if (!CPU_COUNT(&all) && sched_getaffinity(0, sizeof(all), &all)) {
		perror("sched_getaffinity");
		_exit(1);
	}
	pid = fork();
	processor(pid != 0);
	return pid;
}

void device_wait(void)
{
	wait(NULL);
	sched_setaffinity(0, sizeof(all), &all);
}

struct lines {
	_Atomic uint64_t there __attribute__((aligned(128)));
	_Atomic uint64_t back __attribute__((aligned(128)));
};

static void wait_for(_Atomic uint64_t *line, uint64_t value)
{
	while (atomic_load_explicit(line, memory_order_acquire) != value)
		;
}

double device_line(void)
{
	struct lines *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double took[ROUNDS];
	uint64_t i;

	if (l == MAP_FAILED) {
		perror("mmap");
		_exit(1);
	}
	if (!device_fork()) {
		for (i = 1; i <= ROUNDS; i++) {
			wait_for(&l->there, i);
			atomic_store_explicit(&l->back, i, memory_order_release);
		}
		_exit(0);
	}
	for (i = 1; i <= ROUNDS; i++) {
		double start = bench_now();

		atomic_store_explicit(&l->there, i, memory_order_release);
		wait_for(&l->back, i);
		took[i - 1] = bench_now() - start;
	}
	device_wait();
	munmap(l, sizeof(*l));
	return bench_median(took, ROUNDS) / 2;
}

static int pass(int from, int to)
{
	uint64_t n = 1;

	return write(to, &n, sizeof(n)) == sizeof(n) && read(from, &n, sizeof(n)) == sizeof(n);
}

double device_eventfd(void)
{
	int there = eventfd(0, EFD_CLOEXEC), back = eventfd(0, EFD_CLOEXEC), i;
	double took[ROUNDS];
	uint64_t n;

	if (!device_fork()) {
		for (i = 0; i < ROUNDS; i++)
			if (read(there, &n, sizeof(n)) != sizeof(n) || (n = 1, write(back, &n, sizeof(n))) != sizeof(n))
				_exit(1);
		_exit(0);
	}
	for (i = 0; i < ROUNDS; i++) {
		double start = bench_now();

		if (!pass(back, there))
			_exit(1);
		took[i] = bench_now() - start;
	}
	device_wait();
	close(there);
	close(back);
	return bench_median(took, ROUNDS) / 2;
}
