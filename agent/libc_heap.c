/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that a device's library gets from malloc at a restart (libc_borrow.c). Owns regions of address space that are never given back, and
 * an arena in them. They are memory of the program's: saved with it, because what libc and the dynamic linker keep of a library is there.
 *
 *   | raw block, slot | payload, aligned |
 *
 * A region is added under the lock before its count is raised, so libc_heap_owns needs none. Lock: that of the arena.
 */
#include "agent/libc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/macro.h"
#include "base/sys.h"

#define REGION_SIZE (64u << 20)
#define REGIONS 256u

struct slot {
	void *raw;
	size_t size;
};

static struct {
	struct {
		uint64_t start, end;
	} regions[REGIONS];
	_Atomic uint32_t count;
	struct lock lock;
	uint64_t used; /* of the last region */
} space;

static int region_add(size_t len)
{
	size_t size = len > REGION_SIZE ? len : REGION_SIZE;
	uint32_t n = atomic_load(&space.count);
	char *p;

	if (n == REGIONS)
		return -ENOMEM;
	p = raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_is_error(p))
		return -ENOMEM;
	space.regions[n].start = (uint64_t)p;
	space.regions[n].end = (uint64_t)p + size;
	space.used = 0;
	atomic_store(&space.count, n + 1);
	return 0;
}

static void *space_map(size_t len)
{
	void *p = NULL;
	uint32_t n;

	len = ALIGN_UP(len, (size_t)FM_PAGE_SIZE);
	lock_acquire(&space.lock);
	n = atomic_load(&space.count);
	if ((n && space.regions[n - 1].end - space.regions[n - 1].start - space.used >= len) || !region_add(len)) {
		n = atomic_load(&space.count);
		p = (void *)(space.regions[n - 1].start + space.used);
		space.used += len;
	}
	lock_release(&space.lock);
	return p;
}

static int space_unmap(void *at, size_t len)
{
	return (int)RAW3(SYS_madvise, at, len, 4 /* MADV_DONTNEED */);
}

static struct arena heap = { .map = space_map, .unmap = space_unmap };

static struct slot *slot_of(const void *p)
{
	return (struct slot *)(uintptr_t)p - 1;
}

void *libc_heap_alloc(size_t size, size_t align)
{
	size_t room;
	char *raw, *p;

	if (align < sizeof(struct slot))
		align = sizeof(struct slot);
	room = size + align + sizeof(struct slot);
	raw = room > size ? arena_alloc(&heap, room) : NULL;
	if (!raw)
		return NULL;
	p = (char *)ALIGN_UP((uintptr_t)raw + sizeof(struct slot), (uintptr_t)align);
	*slot_of(p) = (struct slot){ raw, size };
	return p;
}

void libc_heap_free(void *p)
{
	arena_free(&heap, slot_of(p)->raw);
}

size_t libc_heap_size(const void *p)
{
	return slot_of(p)->size;
}

void libc_heap_lock(void)
{
	lock_acquire(&heap.lock);
}

void libc_heap_unlock(void)
{
	lock_release(&heap.lock);
}

bool libc_heap_owns(const void *p)
{
	uint32_t n = atomic_load_explicit(&space.count, memory_order_acquire);

	for (uint32_t i = 0; i < n; i++)
		if ((uint64_t)p >= space.regions[i].start && (uint64_t)p < space.regions[i].end)
			return true;
	return false;
}
