/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that has looked for RDMA devices and loads libraries (verbs_slow.c), each of them again and again: one in its only thread, with a
 * moment between two turns, several in a thread each.
 *
 *   verbs_loading ROUNDS LIBRARY..
 *
 * It prints "ready" when it begins, and a line for each time.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 8

static int rounds, alone;

static void *load(void *library)
{
	const struct timespec moment = { 0, 20000000 };

	for (int i = 0; i < rounds; i++) {
		void *h = dlopen(library, RTLD_NOW | RTLD_LOCAL);

		if (!h || dlclose(h)) {
			printf("wrong: %s\n", dlerror());
			exit(1);
		}
		printf("%s: %d\n", (char *)library, i);
		fflush(stdout);
		if (alone)
			nanosleep(&moment, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int devices;

	if (argc < 3 || argc - 2 > THREADS)
		return 2;
	rounds = atoi(argv[1]);
	if (!ibv_get_device_list(&devices))
		return 1;
	printf("ready\n");
	fflush(stdout);
	alone = argc == 3;
	if (alone)
		load(argv[2]);
	for (int i = 2; !alone && i < argc; i++)
		if (pthread_create(&threads[i - 2], NULL, load, argv[i]))
			return 1;
	for (int i = 2; !alone && i < argc; i++)
		pthread_join(threads[i - 2], NULL);
	printf("loaded\n");
	return 0;
}
