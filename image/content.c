/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies and sums the content of a file, block by block. Owns nothing beyond the call; its caller's buffer and raw system calls only: it runs
 * in a stopped program, too.
 *
 * Invariant: what is summed is what was written: both come from the buffer.
 */
#include "image/content.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

#include "base/macro.h"
#include "base/sys.h"
#include "image/hash.h"

struct walk {
	const struct image_content_work *w;
	int from, to;
	uint64_t sum, bytes;
	uint64_t hole_end; /* no data before it */
	uint64_t zero_sum; /* of a whole block of zeros; 0: not known yet */
	bool reading;
};

static void chain(struct walk *k, uint64_t block_sum)
{
	uint64_t both[2] = { k->sum, block_sum };

	k->sum = image_hash64(both, sizeof(both));
}

static bool is_zero(const char *p, size_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/* Where data begins at or behind @at. A file system that does not know holes has data everywhere. */
static bool is_hole(struct walk *k, uint64_t at, size_t n)
{
	long data;

	if (at + n <= k->hole_end || k->w->dense)
		return at + n <= k->hole_end;
	data = raw_lseek(k->from, (int64_t)at, SEEK_DATA);
	k->hole_end = data >= 0 ? (uint64_t)data : data == -ENXIO ? UINT64_MAX : at;
	return at + n <= k->hole_end;
}

/* The runs of pages that are not zero. */
static int write_block(struct walk *k, uint64_t at, size_t n)
{
	const char *b = k->w->buffer;
	size_t start = 0, end;
	int r = 0;

	while (start < n && !r) {
		size_t page = n - start < FM_PAGE_SIZE ? n - start : FM_PAGE_SIZE;

		if (is_zero(b + start, page)) {
			start += page;
			continue;
		}
		for (end = start + page; end < n; end += page) {
			page = n - end < FM_PAGE_SIZE ? n - end : FM_PAGE_SIZE;
			if (is_zero(b + end, page))
				break;
		}
		k->bytes += end - start;
		if (k->to >= 0)
			r = raw_pwrite_all(k->to, b + start, end - start, at + start);
		start = end;
	}
	return r;
}

static int take_hole(struct walk *k, size_t n)
{
	if (n == IMAGE_CONTENT_BLOCK && k->zero_sum) {
		chain(k, k->zero_sum);
		return 0;
	}
	memset(k->w->buffer, 0, n);
	chain(k, image_hash64(k->w->buffer, n));
	if (n == IMAGE_CONTENT_BLOCK)
		k->zero_sum = image_hash64(k->w->buffer, n);
	return 0;
}

static int take_block(struct walk *k, uint64_t at, size_t n)
{
	int r;

	if (is_hole(k, at, n))
		return take_hole(k, n);
	k->reading = true;
	r = raw_pread_all(k->from, k->w->buffer, n, at);
	if (r)
		return r;
	k->reading = false;
	if (k->w->mask)
		k->w->mask(k->w->arg, at, k->w->buffer, n);
	chain(k, image_hash64(k->w->buffer, n));
	return write_block(k, at, n);
}

int image_content_copy(const struct image_content_work *w, int from, int to, uint64_t size, uint64_t *ret_sum, uint64_t *ret_bytes,
		       bool *ret_reading)
{
	struct walk k = { .w = w, .from = from, .to = to };
	int r = 0;

	for (uint64_t at = 0; at < size && !r; at += IMAGE_CONTENT_BLOCK) {
		r = take_block(&k, at, size - at < IMAGE_CONTENT_BLOCK ? size - at : IMAGE_CONTENT_BLOCK);
		if (!r && w->progress)
			r = w->progress(w->arg, at);
	}
	if (!r && to >= 0)
		r = (int)RAW2(SYS_ftruncate, to, size);
	*ret_sum = k.sum;
	*ret_bytes = k.bytes;
	*ret_reading = k.reading;
	return r;
}

int image_content_clone(int from, int to)
{
	return raw_ioctl(to, FICLONE, (void *)(intptr_t)from);
}
