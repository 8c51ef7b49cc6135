/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the data area with several threads. Without libc state; the threads share a thread pointer and
 * touch no TLS.
 *
 * There are two queues of work over the same blocks (1 MiB): to write them and to sum them. A lane (thread)
 * works on one of the queues until it is empty, then helps with the sums. Half of the lanes write, from the
 * program's memory straight to the disk, long stretches in ascending order; the others sum at the same time.
 * One writer that never waits for a sum is faster than two that each sum and write in turns: file systems
 * let one thread at a time extend a file. Who sums a block tells the writer whether it is full or zero, where it comes first:
 * the disk then need not wait for the looking.
 *
 * A block that lies whole within one direct run is written and summed in place. Every other block (small
 * runs side by side, memory that may not be readable, that changes) is first gathered in a buffer of the
 * writing lane, and the buffer is summed and written.
 *
 * Why sum and data agree although direct memory is read twice: no thread of the program runs, and this code
 * writes to runs that are marked or found to be live, which are gathered. A device could still write into
 * registered memory, but the DRAIN phase before this one ends only when no operation of any process of the
 * job is outstanding: there is nothing left that a device would carry out. Were that broken, the checksum
 * would say so at the next verify, which is wanted.
 *
 * Errors: the first one is kept (image_fail), every lane stops at its next claim.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fault.h"
#include "base/sys.h"
#include "base/thread.h"
#include "image/hash.h"
#include "image/internal.h"

#define WRITE_BLOCKS 32u /* claimed at a time by a writing lane; also the longest single write */
#define SUM_BLOCKS 4u	 /* by a summing one */
#define STACK_SIZE (64u << 10)
#define PROGRESS_NS 50000000u

struct lane {
	struct image_file *f;
	struct raw_thread thread;
	char *buffer; /* one block */
	void *stack;
	const char *pending; /* contiguous bytes that wait to be written */
	uint64_t pending_length, pending_offset;
	uint64_t placed;     /* index of the run that the last block began in */
	uint64_t told_ns;
	bool first, writes;
};

/*
 * The kernel could not read memory in place: by way of the buffer, which is free while direct bytes are
 * pending.
 */
static int lane_write_copied(struct lane *l)
{
	uint64_t done, n;
	int r = 0;

	for (uint64_t at = 0; at < l->pending_length && !r; at += n) {
		uint64_t address = (uint64_t)(uintptr_t)l->pending + at;

		n = l->pending_length - at;
		if (n > IMAGE_BLOCK_SIZE)
			n = IMAGE_BLOCK_SIZE;
		r = image_memory_copy(l->f, l->buffer, address, n, &done);
		if (r)
			return image_fail(l->f, r, IMAGE_STEP_MEMORY, address + done);
		r = image_pwrite(l->f, l->buffer, n, l->pending_offset + at);
	}
	return r;
}

static int lane_flush(struct lane *l)
{
	struct image_file *f = l->f;
	int r = 0;

	if (!l->pending_length)
		return 0;
	r = image_pwrite(f, l->pending, l->pending_length, l->pending_offset);
	if (r == -EFAULT && l->pending != l->buffer)
		r = lane_write_copied(l);
	if (r)
		return image_fail(f, r, IMAGE_STEP_WRITE, l->pending_offset);
	if (!f->direct) /* let the disk begin now, not at the sync */
		RAW4(SYS_sync_file_range, f->fd, l->pending_offset, l->pending_length, 2 /* SYNC_FILE_RANGE_WRITE */);
	atomic_fetch_add_explicit(&f->memory_written, l->pending_length, memory_order_relaxed);
	l->pending_length = 0;
	return 0;
}

static int lane_add(struct lane *l, const char *data, uint64_t length, uint64_t offset)
{
	int r = 0;

	if (l->pending_length && (l->pending + l->pending_length != data || l->pending_offset + l->pending_length != offset))
		r = lane_flush(l);
	if (!l->pending_length) {
		l->pending = data;
		l->pending_offset = offset;
	}
	l->pending_length += length;
	return r;
}

static bool worth_a_hole(uint64_t zeros, uint64_t block_length)
{
	return zeros >= IMAGE_HOLE_PAGES * FM_PAGE_SIZE || (zeros && zeros == block_length);
}

/* Queues what is not zero of one block. */
static int lane_add_nonzero(struct lane *l, const char *data, uint64_t length, uint64_t offset)
{
	uint64_t begin = 0, at = 0;
	int r = 0;

	while (at < length && !r) {
		uint64_t zeros = image_zero_length(data + at, length - at);

		if (worth_a_hole(zeros, length)) {
			if (at > begin)
				r = lane_add(l, data + begin, at - begin, offset + begin);
			begin = at + zeros;
		}
		at += zeros ? zeros : FM_PAGE_SIZE;
	}
	if (!r && begin < length)
		r = lane_add(l, data + begin, length - begin, offset + begin);
	return r;
}

/* Copies the bytes of one block from all runs that it spans. */
static int lane_gather(struct lane *l, uint64_t offset, uint64_t length)
{
	const struct image_file *f = l->f;
	uint64_t have = 0, n, done;

	for (uint64_t i = l->placed; have < length; i++) {
		const struct image_placed *p = &f->placed[i];
		uint64_t skip = offset + have - p->offset, address = p->start + skip;
		int r;

		n = p->length - skip;
		if (n > length - have)
			n = length - have;
		if (p->direct) {
			memcpy(l->buffer + have, (const char *)(uintptr_t)address, n);
		} else {
			r = image_memory_copy(f, l->buffer + have, address, n, &done);
			if (r)
				return image_fail(l->f, r, IMAGE_STEP_MEMORY, address + done);
		}
		have += n;
	}
	return 0;
}

static void lane_seek(struct lane *l, uint64_t offset)
{
	const struct image_file *f = l->f;
	uint64_t low = 0, high = f->placed_count - 1;

	while (low < high) {
		uint64_t mid = (low + high + 1) / 2;

		if (f->placed[mid].offset <= offset)
			low = mid;
		else
			high = mid - 1;
	}
	l->placed = low;
}

static bool is_live(const struct image_dump *d, uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < d->live_count; i++)
		if (start < d->live[i].end && d->live[i].start < end)
			return true;
	return false;
}

/*
 * The length of a block; l->placed becomes the run that it begins in. NULL, or where all of the block lies in
 * direct memory.
 */
static const char *lane_find(struct lane *l, uint64_t block, uint64_t *ret_length)
{
	const struct image_file *f = l->f;
	uint64_t offset = f->data_start + block * IMAGE_BLOCK_SIZE, length = f->data_end - offset;
	const struct image_placed *p;
	uint64_t address;

	if (length > IMAGE_BLOCK_SIZE)
		length = IMAGE_BLOCK_SIZE;
	while (l->placed + 1 < f->placed_count && f->placed[l->placed + 1].offset <= offset)
		l->placed++;
	p = &f->placed[l->placed];
	*ret_length = length;
	if (!p->direct || offset + length > p->offset + p->length)
		return NULL;
	address = p->start + (offset - p->offset);
	return is_live(f->dump, address, address + length) ? NULL : (const char *)(uintptr_t)address;
}

static enum block_kind kind_of(const char *data, uint64_t length)
{
	uint64_t zeros = image_zero_length(data, length);

	if (zeros == length)
		return BLOCK_EMPTY;
	for (uint64_t at = 0; at < length; at += zeros ? zeros : FM_PAGE_SIZE) {
		zeros = image_zero_length(data + at, length - at);
		if (worth_a_hole(zeros, length))
			return BLOCK_MIXED;
	}
	return BLOCK_FULL;
}

/* A block that lies in place. */
static int lane_add_block(struct lane *l, uint64_t block, const char *data, uint64_t length, uint64_t offset)
{
	switch (atomic_load_explicit(&l->f->kinds[block], memory_order_relaxed)) {
	case BLOCK_EMPTY:
		return 0;
	case BLOCK_FULL:
		return lane_add(l, data, length, offset);
	default:
		return lane_add_nonzero(l, data, length, offset);
	}
}

static int lane_write(struct lane *l, uint64_t block)
{
	struct image_file *f = l->f;
	uint64_t offset = f->data_start + block * IMAGE_BLOCK_SIZE, length;
	const char *data = lane_find(l, block, &length);
	int r = 0;

	if (block == f->block_count / 2)
		r = fault_point(FAULT_IMAGE_IN_WRITE);
	if (r)
		return image_fail(f, r, IMAGE_STEP_WRITE, offset);
	if (data) {
		r = lane_add_block(l, block, data, length, offset);
	} else {
		r = lane_flush(l);
		if (!r)
			r = lane_gather(l, offset, length);
		if (r)
			return r;
		f->sums[block] = image_hash64(l->buffer, length);
		r = lane_add_nonzero(l, l->buffer, length, offset);
		if (!r)
			r = lane_flush(l);
	}
	atomic_fetch_add_explicit(&f->memory_done, length, memory_order_relaxed);
	return r;
}

static int lane_sum(struct lane *l, uint64_t block)
{
	uint64_t length;
	const char *data = lane_find(l, block, &length);

	if (!data)
		return 0;
	atomic_store_explicit(&l->f->kinds[block], (uint8_t)kind_of(data, length), memory_order_relaxed);
	l->f->sums[block] = image_hash64(data, length);
	return 0;
}

static int lane_progress(struct lane *l)
{
	const struct image_dump *d = l->f->dump;
	uint64_t now;
	int r;

	if (!l->first || !d->progress)
		return 0;
	now = raw_now_ns();
	if (now - l->told_ns < PROGRESS_NS)
		return 0;
	l->told_ns = now;
	r = d->progress(d->progress_arg, l->f->memory_done, l->f->memory_total);
	return r ? image_fail(l->f, r, IMAGE_STEP_ASKED, 0) : 0;
}

/* Claims and does the blocks of one queue until there are no more. */
static int lane_empty(struct lane *l, _Atomic uint64_t *next, uint64_t many, int (*work)(struct lane *l, uint64_t block))
{
	struct image_file *f = l->f;
	int r = 0;

	while (!r && !f->error) {
		uint64_t block = atomic_fetch_add_explicit(next, many, memory_order_relaxed), end = block + many;

		if (block >= f->block_count)
			break;
		if (end > f->block_count)
			end = f->block_count;
		lane_seek(l, f->data_start + block * IMAGE_BLOCK_SIZE);
		for (; block < end && !r; block++)
			r = work(l, block);
		if (!r)
			r = lane_flush(l);
		if (!r)
			r = lane_progress(l);
	}
	return r;
}

static void lane_run(void *arg)
{
	struct lane *l = arg;

	if (!l->writes || !lane_empty(l, &l->f->next_write, WRITE_BLOCKS, lane_write))
		lane_empty(l, &l->f->next_sum, SUM_BLOCKS, lane_sum);
}

static bool lane_init(struct lane *l, struct image_file *f, bool first, bool writes)
{
	*l = (struct lane){ .f = f, .first = first, .writes = writes };
	if (writes)
		l->buffer = image_scratch(IMAGE_BLOCK_SIZE);
	if (!first)
		l->stack = image_scratch(STACK_SIZE);
	return (l->buffer || !writes) && (l->stack || first);
}

static void lane_done(struct lane *l)
{
	image_scratch_free(l->buffer, IMAGE_BLOCK_SIZE);
	image_scratch_free(l->stack, STACK_SIZE);
}

/* The caller's own thread is the first lane, which writes; a lane that cannot be made is done without. */
int image_data_write(struct image_file *f)
{
	struct lane lanes[IMAGE_WRITERS_MAX];
	uint64_t count = f->dump->writers, jobs = (f->block_count + SUM_BLOCKS - 1) / SUM_BLOCKS, made;

	if (!jobs)
		return 0;
	if (count > IMAGE_WRITERS_MAX)
		count = IMAGE_WRITERS_MAX;
	if (count > jobs)
		count = jobs;
	if (!lane_init(&lanes[0], f, true, true)) {
		lane_done(&lanes[0]);
		return image_fail(f, -ENOMEM, IMAGE_STEP_CREATE, 0);
	}
	for (made = 1; made < count; made++) {
		struct lane *l = &lanes[made];

		if (!lane_init(l, f, false, made % 2 == 0) ||
		    raw_thread_spawn(&l->thread, lane_run, l, l->stack, STACK_SIZE)) {
			lane_done(l);
			break;
		}
	}
	lane_run(&lanes[0]);
	for (uint64_t i = 1; i < made; i++) {
		raw_thread_join(&lanes[i].thread);
		lane_done(&lanes[i]);
	}
	lane_done(&lanes[0]);
	return f->error;
}
