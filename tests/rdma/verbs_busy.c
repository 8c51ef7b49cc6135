/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a verbs program: threads that are in libc nearly all of the time, in malloc, in streams, in the dynamic linker, so that a checkpoint cuts
 * them there. VERBS_BUSY says which, a letter each: m (malloc), s (streams), l (dynamic linker). What they hold is checked. (A program with one
 * thread: verbs_alone.c.)
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELD 256u

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			dprintf(2, "verbs_busy: line %d: wrong: %s\n", __LINE__, #condition); \
			abort();                                                           \
		}                                                                          \
	} while (0)

struct held {
	unsigned char *at;
	size_t size;
};

static unsigned int step(unsigned int *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void malloc_once(struct held held[HELD], unsigned int *seed)
{
	unsigned int i = step(seed) % HELD;
	struct held *h = &held[i];

	if (h->at) {
		CHECK(h->at[0] == (unsigned char)i && h->at[h->size - 1] == (unsigned char)i);
		free(h->at);
	}
	h->size = 1 + step(seed) % (step(seed) % 16 ? 300 : 40000);
	h->at = malloc(h->size);
	CHECK(h->at);
	memset(h->at, (int)i, h->size);
}

static void *in_malloc(void *arg)
{
	struct held *held = calloc(HELD, sizeof(*held));
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (;;)
		malloc_once(held, &seed);
	return NULL;
}

static void *in_streams(void *arg)
{
	char first[128] = "", line[128];

	(void)arg;
	for (;;) {
		FILE *f = fopen("/etc/passwd", "re");

		CHECK(f && fgets(line, sizeof(line), f));
		CHECK(!*first || strcmp(first, line) == 0);
		memcpy(first, line, sizeof(first));
		fclose(f);
		fprintf(stderr, "%s", "");
		fflush(NULL);
	}
	return NULL;
}

/*
 * The linker's lock is unfair: who takes it again at once may keep everybody else out for long, and a checkpoint is refused then, naming the
 * lock. So there is a moment between two turns.
 */
static void *in_linker(void *arg)
{
	const struct timespec moment = { 0, 50000 };

	(void)arg;
	for (;; nanosleep(&moment, NULL)) {
		void *h = dlopen("libanl.so.1", RTLD_NOW), *math = dlopen("libm.so.6", RTLD_LAZY);
		double (*root)(double) = math ? (double (*)(double))dlsym(math, "sqrt") : NULL;

		CHECK(root && root(9) == 3);
		dlclose(math);
		if (h)
			dlclose(h);
	}
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	static void *(*const bodies[])(void *) = { ['m'] = in_malloc, ['s'] = in_streams, ['l'] = in_linker };
	const char *which = getenv("FERMATA_JOBDIR") ? getenv("VERBS_BUSY") : NULL; /* not in fermata's own commands */

	for (uintptr_t n = 1; which && *which; which++, n++) {
		pthread_t thread;

		if ((unsigned char)*which >= sizeof(bodies) / sizeof(*bodies) || !bodies[(unsigned char)*which])
			continue;
		CHECK(!pthread_create(&thread, NULL, bodies[(unsigned char)*which], (void *)n));
		pthread_detach(thread);
	}
}
