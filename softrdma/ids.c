/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of objects. A ring of free numbers: taken at the front, given back at the end, so a number that was in
 * use a moment ago (and may still be named by a peer) is the last to come back. Callers hold the context's lock.
 */
#include "softrdma/device.h"

#include <errno.h>

int sr_ids_init(struct sr_context *ctx, struct sr_ids *ids, uint32_t n)
{
	uint32_t first = (uint32_t)(sr_random(ctx) % n);
	uint32_t i;

	ids->ring = arena_alloc(&ctx->arena, n * sizeof(*ids->ring));
	ids->object = arena_alloc(&ctx->arena, n * sizeof(*ids->object));
	if (!ids->ring || !ids->object)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		ids->ring[i] = (first + i) % n;
	ids->n = n;
	return 0;
}

int sr_ids_take(struct sr_ids *ids, void *object, uint32_t *ret_id)
{
	uint32_t id;

	if (ids->used == ids->n)
		return -ENOMEM;
	id = ids->ring[ids->first];
	ids->first = (ids->first + 1) % ids->n;
	ids->used++;
	ids->object[id] = object;
	*ret_id = id;
	return 0;
}

void sr_ids_give(struct sr_ids *ids, uint32_t id)
{
	ids->object[id] = NULL;
	ids->used--;
	ids->ring[(ids->first + (ids->n - ids->used) - 1) % ids->n] = id;
}
