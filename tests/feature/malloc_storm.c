/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads allocate, grow and free blocks of all sizes, each of which carries its own pattern. */
#include "feature.h"

#include <malloc.h>
#include <pthread.h>

enum { THREADS = 6, BLOCKS = 200 };

struct block {
	void *mem;
	size_t size;
	uint64_t seed;
};

static volatile int stop;

static size_t pick_size(uint64_t random)
{
	return 8 * (1 + (random >> 20) % ((random & 63) == 0 ? 60000 : (random & 7) == 0 ? 2000 : 30));
}

static void touch(struct block *b, uint64_t random)
{
	size_t size = pick_size(random);
	void *grown;

	CHECK(!b->mem || pattern_holds(b->mem, b->size, b->seed));
	if (b->mem && random & 0x400) {
		grown = realloc(b->mem, size);
		CHECK(grown);
		CHECK(pattern_holds(grown, size < b->size ? size : b->size, b->seed));
	} else {
		free(b->mem);
		grown = malloc(size);
		CHECK(grown);
	}
	*b = (struct block){ grown, size, random };
	pattern_fill(b->mem, size, random);
}

static void *work(void *arg)
{
	static __thread struct block blocks[BLOCKS];
	struct chain random = { (uint64_t)(uintptr_t)arg, 0 };

	while (!stop) {
		chain_step(&random, 1);
		touch(&blocks[(random.value >> 33) % BLOCKS], random.value >> 8);
		if ((random.value >> 40) % 4096 == 0)
			malloc_trim(0);
	}
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(!blocks[i].mem || pattern_holds(blocks[i].mem, blocks[i].size, blocks[i].seed));
		free(blocks[i].mem);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(i * 7919)) == 0);
	feature_ready();
	while (feature_step())
		feature_work();
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
