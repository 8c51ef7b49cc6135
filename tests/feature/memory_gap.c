/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A gap between two mappings is still one after a restart, with nothing of a checkpoint in it: what the agent maps there while it makes the image has the
 * same kind as the memory around it, so that the kernel shows both as one mapping.
 */
#include "feature.h"

#include <stdbool.h>
#include <sys/mman.h>

#define MIB (1ul << 20)
#define SIDE (64 * MIB)
#define PIECE (16 * MIB)
#define GAP (1024 * MIB + 2 * MIB) /* the agent's first choice, and an alignment to large pages */

/* Memory with SIDE bytes before and behind a gap, which it returns: the highest where so much fits. */
static unsigned char *gap_make(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	unsigned char *all = mmap(NULL, 2 * SIDE + GAP + 2 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0), *gap;

	CHECK(all != MAP_FAILED);
	gap = all + SIDE + -(uintptr_t)all % (2 * MIB);
	CHECK(munmap(gap, GAP) == 0);
	return gap;
}

/* The rest may hold something: a kernel whose choices begin in the gap, in a process of another layout, puts its small mappings there. */
static bool mostly_free(unsigned char *gap)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	size_t pieces = 0;

	for (size_t at = 0; at + PIECE <= GAP; at += PIECE)
		pieces += mmap(gap + at, PIECE, PROT_NONE, flags, -1, 0) == gap + at;
	return pieces * PIECE > GAP / 2;
}

int main(void)
{
	unsigned char *gap = gap_make();
	uint64_t n = 0;

	feature_ready();
	do {
		feature_work();
		pattern_fill(gap - 4096, 4096, ++n);
		pattern_fill(gap + GAP, 4096, ~n);
		CHECK(pattern_holds(gap - 4096, 4096, n) && pattern_holds(gap + GAP, 4096, ~n));
	} while (feature_step());
	CHECK(mostly_free(gap));
	return 0;
}
