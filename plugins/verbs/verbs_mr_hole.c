/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registering memory again of which a part is not mapped any more: a program may free what it has registered (UCX keeps such regions
 * in a cache for a while), and the device has it as before. At restart there is nothing that it could have: so memory stands in the
 * holes for the moment of the registration, and is gone again after it. Owns the list of these holes, one registration long;
 * runs in the checkpoint thread.
 */
#include <errno.h>
#include <stdbool.h>

#include "plugins/verbs/verbs_internal.h"

#include "base/macro.h"
#include "base/sys.h"

struct hole {
	struct hole *next;
	uint64_t start, length;
};

static struct hole *holes;

static bool stand_in(uint64_t start, uint64_t length)
{
	struct hole *h = fermata_alloc(sizeof(*h));
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	void *got = h ? raw_mmap((void *)start, length, PROT_READ | PROT_WRITE, flags, -1, 0) : (void *)-ENOMEM;

	if (got != (void *)start) {
		fermata_free(h);
		return false;
	}
	*h = (struct hole){ holes, start, length };
	holes = h;
	return true;
}

/* Halves what is mapped in part. */
static bool fill(uint64_t start, uint64_t length)
{
	uint64_t half = ALIGN_DOWN(length / 2, (uint64_t)FM_PAGE_SIZE);

	if (!RAW3(SYS_msync, start, length, MS_ASYNC) || stand_in(start, length))
		return true;
	return half && fill(start, half) && fill(start + half, length - half);
}

void verbs_holes_fill(const void *addr, size_t length)
{
	uint64_t start = ALIGN_DOWN((uint64_t)addr, (uint64_t)FM_PAGE_SIZE);

	fill(start, ALIGN_UP((uint64_t)addr + length, (uint64_t)FM_PAGE_SIZE) - start);
}

void verbs_holes_empty(void)
{
	struct hole *h;

	while ((h = holes)) {
		holes = h->next;
		raw_munmap((void *)h->start, h->length);
		fermata_free(h);
	}
}
