/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of objects. New ones are handed out in turn; those that were given back queue up and come again when the queue is
 * long enough, or nothing else is left: a number that was in use a moment ago may still be named by a peer. Callers hold
 * the context's lock.
 */
#include <errno.h>

#include "softrdma/device.h"

int sr_ids_init(struct sr_context *ctx, struct sr_ids *ids, uint32_t n, uint32_t start, uint32_t rest)
{
	ids->ring = arena_alloc(&ctx->arena, n * sizeof(*ids->ring));
	ids->object = arena_alloc(&ctx->arena, n * sizeof(*ids->object));
	if (!ids->ring || !ids->object)
		return -ENOMEM;
	ids->n = n;
	ids->start = start % n;
	ids->rest = rest;
	return 0;
}

int sr_ids_take(struct sr_ids *ids, void *object, uint32_t *ret_id)
{
	uint32_t id;

	if (ids->back > ids->rest || (ids->back && ids->fresh == ids->n)) {
		id = ids->ring[ids->first];
		ids->first = (ids->first + 1) % ids->n;
		ids->back--;
	} else if (ids->fresh < ids->n) {
		id = (ids->start + ids->fresh++) % ids->n;
	} else {
		return -ENOMEM;
	}
	ids->used++;
	ids->object[id] = object;
	*ret_id = id;
	return 0;
}

void sr_ids_give(struct sr_ids *ids, uint32_t id)
{
	ids->object[id] = NULL;
	ids->used--;
	ids->ring[(ids->first + ids->back++) % ids->n] = id;
}
