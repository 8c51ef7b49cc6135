/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions at a restart; makes the table of our local keys. First all local keys that the program knows are entered into our table, without a meaning; then each region is registered again, and what its
 * keys mean now is entered and published, while it is at hand: a program may have hundreds of thousands.
 *
 * A device that lets us give a region other names (verbs_fabric_keys.c) is asked by keys of the program at times. So a region must not have the key that
 * the program knows another one of the same context by: such a one is drawn again.
 *
 * The program stands still.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

int verbs_lkeys_begin(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	uint32_t number = 0, regions = 0;
	int r;

	for_each_context(c)
		regions += c->regions;
	r = verbs_keys_make(&verbs_lkeys, regions);
	for_each_context(c) {
		const struct verbs_owner own = { 0, c->number = ++number };

		list_each(mr, &c->mrs, link)
			r = r ? r : verbs_keys_add(&verbs_lkeys, mr->pub.lkey, 0, own);
	}
	return r ? fermata_fail(r, "no memory for the table of local keys") : 0;
}

static struct key_entry *own_entry(const struct shadow_context *c, uint32_t lkey)
{
	struct key_entry *e;

	keys_each(e, verbs_lkeys, lkey)
		if (e->owner.context == c->number)
			return e;
	return NULL;
}

static enum name_known known_for_another(const struct shadow_context *c, const struct shadow_mr *mr, uint32_t real)
{
	return verbs_backend.softrdma_key_alias && real != mr->pub.lkey && own_entry(c, real) ? NAME_OWN : NAME_NEW;
}

static struct ibv_mr *draw(const struct shadow_context *c, const struct shadow_mr *mr)
{
	struct verbs_draws draws = { 0 };
	struct ibv_mr *real;

	do
		real = verbs_mr_real(mr);
	while (real && verbs_draws_hold(&draws, known_for_another(c, mr, real->lkey), real));
	return verbs_draws_end(&draws, real, verbs_mr_deregister);
}

static int register_again(struct shadow_context *c, struct shadow_mr *mr)
{
	mr->real = VERBS_DEVICE(draw(c, mr));
	if (!mr->real && !mr->dm && mr->pub.length) { /* a part of its memory is not there any more */
		verbs_holes_fill(mr->pub.addr, mr->pub.length);
		mr->real = VERBS_DEVICE(draw(c, mr));
		verbs_holes_empty();
	}
	return mr->real ? 0 : fermata_fail(-errno, "memory region %p+%zu (key 0x%x) cannot be registered on %s again "
					   "(error %d): raise RLIMIT_MEMLOCK (ulimit -l)", mr->pub.addr,
					   mr->pub.length, mr->pub.lkey, c->device->pub.name, errno);
}

int verbs_mrs_recreate(struct shadow_context *c)
{
	struct mr_chunk chunk;
	struct shadow_mr *mr;

	verbs_chunk_begin(&chunk, c);
	list_each(mr, &c->mrs, link) {
		int r = register_again(c, mr);

		if (!r)
			own_entry(c, mr->pub.lkey)->real = mr->real->lkey;
		if (!r && mr->pub.rkey)
			r = verbs_chunk_add(NAME_MR, sizeof(NAME_MR), &chunk, mr->pub.rkey, mr->real->rkey);
		if (r)
			return r;
	}
	return verbs_chunk_end(NAME_MR, sizeof(NAME_MR), &chunk);
}
