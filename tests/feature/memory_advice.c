/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private anonymous memory stays that: MADV_DONTNEED gives zeros, MADV_FREE is accepted, protections hold, mappings
 * without any access keep their bytes, untouched memory is zero and large pages can be asked for.
 */
#include "feature.h"

#include <sys/mman.h>

enum { PAGES = 512 };
#define PAGE 4096ul

static unsigned char *map(size_t len, int prot, int flags)
{
	void *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void dontneed(unsigned char *page, uint64_t seed)
{
	CHECK(pattern_holds(page, PAGE, seed));
	CHECK(madvise(page, PAGE, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < PAGE; i++)
		CHECK(page[i] == 0);
	pattern_fill(page, PAGE, seed);
}

static void maybe_free(unsigned char *page, uint64_t seed)
{
	CHECK(madvise(page, PAGE, MADV_FREE) == 0);
	for (size_t i = 0; i < PAGE; i++)
		page[i] = (unsigned char)seed; /* written again: kept */
	for (size_t i = 0; i < PAGE; i++)
		CHECK(page[i] == (unsigned char)seed);
}

int main(void)
{
	unsigned char *mem = map(PAGES * PAGE, PROT_READ | PROT_WRITE, 0);
	unsigned char *readonly = map(PAGE, PROT_READ | PROT_WRITE, 0);
	unsigned char *none = map(4 * PAGE, PROT_READ | PROT_WRITE, 0);
	unsigned char *reserved = map(1ul << 36, PROT_NONE, MAP_NORESERVE);
	unsigned char *untouched = map(1ul << 30, PROT_READ | PROT_WRITE, MAP_NORESERVE);
	unsigned char *freed = map(PAGE, PROT_READ | PROT_WRITE, 0);
	uint64_t n = 0;

	for (uint64_t i = 0; i < PAGES; i++)
		pattern_fill(mem + i * PAGE, PAGE, i);
	pattern_fill(readonly, PAGE, 77);
	pattern_fill(none, 4 * PAGE, 78);
	CHECK(mprotect(readonly, PAGE, PROT_READ) == 0);
	CHECK(mprotect(none, 4 * PAGE, PROT_NONE) == 0);
	untouched[1ul << 29] = 9;
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 8; i++, n++)
			dontneed(mem + n * 37 % PAGES * PAGE, n * 37 % PAGES);
		maybe_free(freed, n);
		CHECK(madvise(mem, PAGES * PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
		CHECK(pattern_holds(readonly, PAGE, 77));
		CHECK(untouched[n * PAGE % (1ul << 29)] == 0 && untouched[1ul << 29] == 9);
	} while (feature_step());
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK(pattern_holds(mem + i * PAGE, PAGE, i));
	CHECK(mprotect(none, 4 * PAGE, PROT_READ) == 0);
	CHECK(pattern_holds(none, 4 * PAGE, 78));
	CHECK(mprotect(reserved + (1ul << 35), PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(reserved[1ul << 35] == 0);
	return 0;
}
