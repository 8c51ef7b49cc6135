/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * many PROCESSES THREADS: so many processes, each of so many threads besides its first, which do a little now and then. Says "ready" when all do; the file "progress" grows by a byte
 * each time when each of them has done something since.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static volatile uint32_t *done; /* of each thread of each process, how often: a file's, as DMTCP brings shared memory without a name back as everybody's own */
static unsigned int processes, threads;
static struct timespec nap;

static void must(int ok)
{
	if (!ok)
		abort();
}

static void *work(void *slot)
{
	for (;;) {
		(*(volatile uint32_t *)slot)++;
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static void begin_threads(unsigned int process)
{
	pthread_t t;

	for (unsigned int i = 1; i <= threads; i++)
		must(pthread_create(&t, NULL, work, (void *)&done[process * (threads + 1) + i]) == 0);
}

static void begin_processes(void)
{
	for (unsigned int p = 1; p < processes; p++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, 9);
		begin_threads(p);
		work((void *)&done[p * (threads + 1)]);
	}
}

/* Waits until all have done something. */
static void await_all(void)
{
	static uint32_t *before;
	unsigned int all = processes * (threads + 1);

	if (!before)
		must((before = calloc(all, sizeof(*before))) != NULL);
	done[0]++;
	for (unsigned int i = 0; i < all; i++) {
		while (done[i] == before[i])
			nanosleep(&nap, NULL);
	}
	for (unsigned int i = 0; i < all; i++)
		before[i] = done[i];
}

int main(int argc, char **argv)
{
	int progress = open("progress", O_WRONLY | O_CREAT | O_APPEND, 0600), file = open("done", O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned int all;

	must(argc == 3 && progress >= 0);
	processes = (unsigned int)atoi(argv[1]);
	threads = (unsigned int)atoi(argv[2]);
	all = processes * (threads + 1);
	nap.tv_nsec = (all < 20 ? 4 : all / 5) * 1000000l; /* some 5,000 wake up in a second at most */
	must(file >= 0 && ftruncate(file, all * (off_t)sizeof(*done)) == 0);
	done = mmap(NULL, all * sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	must(done != MAP_FAILED);
	begin_processes();
	begin_threads(0);
	await_all();
	must(write(1, "ready\n", 6) == 6);
	for (;;) {
		await_all();
		must(write(progress, ".", 1) == 1);
	}
}
