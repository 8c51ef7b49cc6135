/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation within the own segment: by classes of size, four to a power of two; memory is fetched by fallocate before
 * its first use, some ahead where there is plenty, so that a full /dev/shm is ENOMEM and not a SIGBUS. Free blocks are
 * linked through their first word. Under ctx->lock.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define AHEAD_MAX (1u << 20)

/* The class of @size, and its block's size: 256, 320, 384, 448, 512, 640, .. */
static unsigned int size_class(size_t size, uint64_t *ret_len)
{
	unsigned int log, quarter;

	size = size < 256 ? 256 : size;
	log = 63 - (unsigned int)__builtin_clzl(size - 1);
	quarter = (unsigned int)((size - 1) >> (log - 2)) & 3;
	*ret_len = (uint64_t)(quarter + 5) << (log - 2);
	return log * 4 + quarter - 28;
}

/* Memory up to @end; ahead of need as much as is in use, so that few calls do for many objects. */
static int room(struct sr_context *ctx, uint64_t end)
{
	uint64_t used = ctx->seg_reserved - ALIGN_UP(sizeof(struct sr_seg), FM_PAGE_SIZE);
	uint64_t to = ALIGN_UP(end + (used < AHEAD_MAX ? used : AHEAD_MAX), FM_PAGE_SIZE);

	if (end <= ctx->seg_reserved)
		return 0;
	if (end > SR_SEG_SIZE)
		return -ENOMEM;
	if (to > SR_SEG_SIZE || sr_shm_reserve(ctx, ctx->seg_reserved, to - ctx->seg_reserved)) {
		to = ALIGN_UP(end, FM_PAGE_SIZE);
		if (sr_shm_reserve(ctx, ctx->seg_reserved, to - ctx->seg_reserved))
			return -ENOMEM;
	}
	ctx->seg_reserved = to;
	return 0;
}

void *sr_shm_alloc(struct sr_context *ctx, size_t size)
{
	uint64_t len, off;
	unsigned int c = size_class(size, &len);
	void *p;

	off = ctx->seg_free[c];
	p = sr_at(ctx->seg, off);
	if (off) {
		memcpy(&ctx->seg_free[c], p, sizeof(uint64_t));
		memset(p, 0, len);
		return p;
	}
	if (room(ctx, ctx->seg_bump + len))
		return NULL;
	p = sr_at(ctx->seg, ctx->seg_bump);
	ctx->seg_bump += len;
	return p;
}

void sr_shm_free(struct sr_context *ctx, void *p, size_t size)
{
	uint64_t len;
	unsigned int c = size_class(size, &len);

	if (!p)
		return;
	memcpy(p, &ctx->seg_free[c], sizeof(uint64_t));
	ctx->seg_free[c] = (uint64_t)((char *)p - (char *)ctx->seg);
}
