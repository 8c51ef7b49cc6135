/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the ends of the mappings that the program has made to grow downwards (MAP_GROWSDOWN), the newest few: /proc/self/maps does not tell, and smaps, which does, costs a
 * walk over all pages. Written by any thread, in saved memory. One that is unmapped stays: what is mapped there later may then grow after a restart,
 * which nobody sees.
 */
#include <stdatomic.h>

#include "agent/agent.h"
#include "agent/maps.h"

#define ENDS 16

static _Atomic uint64_t ends[ENDS];
static _Atomic uint32_t count;

void growing_note(const void *at, size_t length)
{
	atomic_store(&ends[atomic_fetch_add(&count, 1) % ENDS], ALIGN_UP((uintptr_t)at + length, (uintptr_t)FM_PAGE_SIZE));
}

bool growing_is(uint64_t end)
{
	for (uint32_t i = 0; i < ENDS; i++)
		if (atomic_load_explicit(&ends[i], memory_order_relaxed) == end)
			return true;
	return false;
}
