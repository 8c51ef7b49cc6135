/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns what the device's library made: a bitmap of descriptors and a sorted array of address ranges. Ranges are added and removed
 * inside device calls only (control path), under one lock; the checkpoint thread reads them while nothing else runs.
 */
#include "agent/device.h"

#include <string.h>

#include "agent/agent.h"

#define DEVICE_FDS 65536

struct range {
	uint64_t start, end;
};

static _Atomic uint64_t fds[DEVICE_FDS / 64];
static struct lock ranges_lock;
static struct range *ranges;
static size_t range_count, range_room;

void device_fd_add(int fd)
{
	if (fd >= 0 && fd < DEVICE_FDS)
		atomic_fetch_or(&fds[fd / 64], 1ull << (fd % 64));
}

void device_fd_remove(int fd)
{
	if (device_owns_fd(fd))
		atomic_fetch_and(&fds[fd / 64], ~(1ull << (fd % 64)));
}

bool device_owns_fd(int fd)
{
	return fd >= 0 && fd < DEVICE_FDS &&
	       (atomic_load_explicit(&fds[fd / 64], memory_order_relaxed) >> (fd % 64) & 1);
}

static void range_insert(size_t at, uint64_t start, uint64_t end)
{
	if (range_count == range_room) {
		size_t room = range_room ? range_room * 2 : 64;
		struct range *more = arena_realloc(&agent_arena, ranges, room * sizeof(*more));

		if (!more) {
			log_error("no memory to note the device mapping %lx-%lx", start, end);
			return;
		}
		ranges = more;
		range_room = room;
	}
	memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof(*ranges));
	ranges[at] = (struct range){ start, end };
	range_count++;
}

/* Cuts [start, end) out of all ranges. */
static void range_cut(uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < range_count; i++) {
		struct range *r = &ranges[i];

		if (r->end <= start || r->start >= end)
			continue;
		if (r->start < start && r->end > end) {
			uint64_t tail = r->end;

			r->end = start;
			range_insert(i + 1, end, tail);
			return;
		}
		if (r->start < start) {
			r->end = start;
		} else if (r->end > end) {
			r->start = end;
		} else {
			memmove(r, r + 1, (range_count - i - 1) * sizeof(*r));
			range_count--;
			i--;
		}
	}
}

void device_range_add(uint64_t start, uint64_t len)
{
	uint64_t end = start + ALIGN_UP(len, (uint64_t)FM_PAGE_SIZE);
	size_t at = 0;

	lock_acquire(&ranges_lock);
	range_cut(start, end);
	while (at < range_count && ranges[at].start < start)
		at++;
	range_insert(at, start, end);
	lock_release(&ranges_lock);
}

void device_range_remove(uint64_t start, uint64_t len)
{
	lock_acquire(&ranges_lock);
	range_cut(start, start + ALIGN_UP(len, (uint64_t)FM_PAGE_SIZE));
	lock_release(&ranges_lock);
}

bool device_range_next(uint64_t start, uint64_t end, uint64_t *ret_start, uint64_t *ret_end)
{
	for (size_t i = 0; i < range_count; i++) {
		if (ranges[i].end <= start || ranges[i].start >= end)
			continue;
		*ret_start = ranges[i].start > start ? ranges[i].start : start;
		*ret_end = ranges[i].end < end ? ranges[i].end : end;
		return true;
	}
	return false;
}

void device_lock(void)
{
	lock_acquire(&ranges_lock);
}

void device_unlock(void)
{
	lock_release(&ranges_lock);
}

void device_forget(void)
{
	range_count = 0;
	memset(fds, 0, sizeof(fds));
}
