/* SPDX-License-Identifier: BSD-2-Clause */
/* The program break grows and shrinks, and its memory is what was written there. */
#include "feature.h"

enum { MAX = 64 };
#define PAGE 4096l

int main(void)
{
	unsigned char *start = sbrk(0);
	long pages = 0, n = 0;

	start = (unsigned char *)(((uintptr_t)start + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
	CHECK(brk(start) == 0);
	feature_ready();
	do {
		long want = n++ * 7 % MAX;

		CHECK(sbrk(0) == start + pages * PAGE);
		CHECK(sbrk((want - pages) * PAGE) == start + pages * PAGE);
		for (long i = pages; i < want; i++) {
			CHECK(start[i * PAGE] == 0 && start[i * PAGE + PAGE - 1] == 0);
			pattern_fill(start + i * PAGE, PAGE, (uint64_t)i);
		}
		pages = want;
		for (long i = 0; i < pages; i++)
			CHECK(pattern_holds(start + i * PAGE, PAGE, (uint64_t)i));
		feature_work();
	} while (feature_step());
	return 0;
}
