/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns what the device's library made: a bitmap of descriptors and a sorted array of address ranges. (Its threads: device_thread.c.)
 *
 * A device's thread runs while the image is written (device_thread.c), so all of this may change meanwhile. Hence it lies in one block that the writer is told of
 * (device_live), and an array that has grown out of it in a mapping of its own, which is itself the device's. At a restart nothing of it counts.
 *
 * Locks: making_lock before ranges_lock. Ranges are added and removed inside device calls only (control path), under ranges_lock. Between the
 * kernel's making of a thing and its note, or its note's end and its own, the thing looks like the program's. A thread of the program is
 * never seen there, because it is not stopped inside a device call; a device's thread holds making_lock there, and so does whoever
 * lists descriptors or mappings. The program's threads do not take that lock: a signal handler that runs inside a device call might want it.
 */
#include "agent/device.h"

#include <string.h>

#include "agent/agent.h"

#define DEVICE_FDS 65536
#define FIRST_ROOM 128u /* most devices need no more, and a mapping's first page is dear */
#define RANGES_SIZE (4u << 20)
#define RANGES_ROOM (RANGES_SIZE / sizeof(struct range))

struct range {
	uint64_t start, end;
};

static struct {
	_Atomic uint64_t fds[DEVICE_FDS / 64];
	struct lock making_lock, ranges_lock;
	struct range first[FIRST_ROOM], *ranges; /* NULL: first; else a mapping of RANGES_SIZE, which is noted in it */
	size_t range_count;
} made;

void device_fd_add(int fd)
{
	if (fd >= 0 && fd < DEVICE_FDS)
		atomic_fetch_or(&made.fds[fd / 64], 1ull << (fd % 64));
}

void device_fd_remove(int fd)
{
	if (device_owns_fd(fd))
		atomic_fetch_and(&made.fds[fd / 64], ~(1ull << (fd % 64)));
}

bool device_owns_fd(int fd)
{
	return fd >= 0 && fd < DEVICE_FDS &&
	       (atomic_load_explicit(&made.fds[fd / 64], memory_order_relaxed) >> (fd % 64) & 1);
}

static struct range *ranges(void)
{
	return made.ranges ? made.ranges : made.first;
}

static void range_insert(size_t at, uint64_t start, uint64_t end)
{
	struct range *r = ranges() + at;

	if (made.range_count == (made.ranges ? RANGES_ROOM : FIRST_ROOM)) {
		log_error("no room to note the device mapping %lx-%lx", start, end);
		return;
	}
	memmove(r + 1, r, (made.range_count - at) * sizeof(*r));
	*r = (struct range){ start, end };
	made.range_count++;
}

static void range_insert_sorted(uint64_t start, uint64_t end)
{
	size_t at = 0;

	while (at < made.range_count && ranges()[at].start < start)
		at++;
	range_insert(at, start, end);
}

/* Before a range is added or cut in two, and for the one of the mapping itself. */
static void ranges_make_room(void)
{
	char *p;

	if (made.ranges || made.range_count + 3 <= FIRST_ROOM)
		return;
	p = raw_mmap(NULL, RANGES_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_is_error(p))
		return;
	memcpy(p, made.first, made.range_count * sizeof(struct range));
	made.ranges = (void *)p;
	range_insert_sorted((uint64_t)p, (uint64_t)p + RANGES_SIZE);
}

/* Cuts [start, end) out of all ranges. */
static void range_cut(uint64_t start, uint64_t end)
{
	ranges_make_room();
	for (size_t i = 0; i < made.range_count; i++) {
		struct range *r = ranges() + i;

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
			memmove(r, r + 1, (made.range_count - i - 1) * sizeof(*r));
			made.range_count--;
			i--;
		}
	}
}

void device_range_add(uint64_t start, uint64_t len)
{
	uint64_t end = start + ALIGN_UP(len, (uint64_t)FM_PAGE_SIZE);

	lock_acquire(&made.ranges_lock);
	range_cut(start, end);
	range_insert_sorted(start, end);
	lock_release(&made.ranges_lock);
}

void device_range_remove(uint64_t start, uint64_t len)
{
	lock_acquire(&made.ranges_lock);
	range_cut(start, start + ALIGN_UP(len, (uint64_t)FM_PAGE_SIZE));
	lock_release(&made.ranges_lock);
}

bool device_range_next(uint64_t start, uint64_t end, uint64_t *ret_start, uint64_t *ret_end)
{
	for (const struct range *r = ranges(), *last = r + made.range_count; r < last; r++) {
		if (r->end <= start || r->start >= end)
			continue;
		*ret_start = r->start > start ? r->start : start;
		*ret_end = r->end < end ? r->end : end;
		return true;
	}
	return false;
}

static bool is_device_thread(void)
{
	return fermata_thread.device_depth & DEVICE_THREAD;
}

void device_making_begin(void)
{
	if (unlikely(is_device_thread()))
		lock_acquire(&made.making_lock);
}

void device_making_end(void)
{
	if (unlikely(is_device_thread()))
		lock_release(&made.making_lock);
}

void device_list_begin(void)
{
	lock_acquire(&made.making_lock);
}

void device_list_end(void)
{
	lock_release(&made.making_lock);
}

void device_lock(void)
{
	lock_acquire(&made.making_lock);
	lock_acquire(&made.ranges_lock);
}

void device_unlock(void)
{
	lock_release(&made.ranges_lock);
	lock_release(&made.making_lock);
}

void device_forget(void)
{
	memset(&made, 0, sizeof(made));
}

struct image_range device_live(void)
{
	return (struct image_range){ (uint64_t)&made, (uint64_t)(&made + 1) };
}
