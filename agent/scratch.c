/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the reservation. The agent's arena cannot serve here: what it maps after the mappings were listed would be missing in the image,
 * and its own state, which is in the image, would point there.
 */
#include "agent/scratch.h"

#include <errno.h>
#include <string.h>

#include "base/macro.h"
#include "base/sys.h"

static char *block, *next;
static size_t block_size;

/* Of a program that has its memory locked (mlockall), all would be: it is let go before there is a page of it. */
static void *reserve(size_t size)
{
	void *at = raw_mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (raw_is_error(at))
		return at;
	RAW2(SYS_munlock, at, size);
	if (!raw_mprotect(at, size, PROT_READ | PROT_WRITE))
		return at;
	raw_munmap(at, size);
	return (void *)-ENOMEM;
}

int scratch_begin(void)
{
	for (block_size = 1u << 30; block_size >= 1u << 20; block_size /= 4) {
		block = reserve(block_size);
		if (!raw_is_error(block)) {
			next = block;
			return 0;
		}
	}
	block = NULL;
	return -ENOMEM;
}

void scratch_end(void)
{
	if (block)
		raw_munmap(block, block_size);
	block = next = NULL;
}

void *scratch_grow(void *p, size_t old, size_t size)
{
	char *q = next;

	size = ALIGN_UP(size, (size_t)64);
	if (!block || size > block_size - (size_t)(next - block))
		return NULL;
	next += size;
	if (p)
		memcpy(q, p, old);
	return q;
}

void scratch_range(uint64_t *ret_start, uint64_t *ret_end)
{
	*ret_start = (uint64_t)block;
	*ret_end = (uint64_t)block + (block ? block_size : 0);
}
