/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of regions and windows after a restart, as verbs_names.c has learnt them. A device gives a key once; two devices may give the same one, and so may contexts of one
 * device that keep tables of their own. What a key means is therefore told by whose it is:
 *
 *   a local key     by the context that the request is posted in
 *   a remote key    by the context of the queue pair that the connection leads to, if that was there before the restart (shadow_qp.peer_owner);
 *                   else by the device that it leads to (shadow_qp.peer_device): of the queue pair nobody has published whose it is
 *
 * Processes of several hosts that are on one now may have had one key, and be at one device. A device that lets us give a region other names is asked by
 * the key that the program has then, and whom it is for can tell what it means (keys_alias).
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

/* ---- the data path's look-ups ---- */

uint32_t verbs_lkey_real(const struct shadow_context *c, uint32_t key)
{
	struct key_entry *e;

	keys_each(e, verbs_lkeys, key)
		if (e->owner.context == c->number)
			return e->real;
	return key;
}

static uint32_t window_real(const struct entry *e, uint32_t key)
{
	return ((uint32_t)e->value & ~0xffu) | ((key - (uint32_t)(e->value >> 32) + (uint32_t)e->value) & 0xff);
}

static int owner_is(struct verbs_owner a, struct verbs_owner b)
{
	return a.member == b.member && a.context == b.context;
}

/* Whether an owner can be at that device; 0: not known which it is. */
static int owner_at(struct verbs_owner owner, uint64_t device)
{
	struct entry *e;

	if (device)
		table_each(e, verbs_owners, verbs_owner_key(owner))
			return e->value == device;
	return 1;
}

/* Of a queue pair whose other end was made in this life: nobody knows by whom. */
static uint32_t key_at(uint64_t device, uint32_t key)
{
	struct key_entry *e, *found = NULL;
	struct entry *w;

	keys_each(e, verbs_rkeys, key) {
		if (!owner_at(e->owner, device))
			continue;
		if (found)
			return verbs_backend.softrdma_key_alias ? key : found->real;
		found = e;
	}
	if (found)
		return found->real;
	table_each(w, verbs_windows, key >> 8)
		if (owner_at(w->owner, device))
			return window_real(w, key);
	return key;
}

uint32_t verbs_rkey_real(struct verbs_owner peer, uint64_t device, uint32_t key)
{
	struct key_entry *e;
	struct entry *w;

	if (!peer.member)
		return key_at(device, key);
	keys_each(e, verbs_rkeys, key)
		if (owner_is(e->owner, peer))
			return e->real;
	table_each(w, verbs_windows, key >> 8)
		if (owner_is(w->owner, peer))
			return window_real(w, key);
	return key;
}

/* ---- control path ---- */

int verbs_key_is_ambiguous(uint32_t key)
{
	struct key_entry *e;
	int owners = 0;

	keys_each(e, verbs_rkeys, key)
		owners++;
	return owners > 1;
}

static enum name_known owner_known(const struct shadow_context *c, struct verbs_owner owner)
{
	if (owner.member == verbs_self && owner.context == c->number)
		return NAME_OWN;
	return owner_at(owner, verbs_device_now(c->device)) ? NAME_OTHERS : NAME_NEW;
}

static enum name_known worse(enum name_known a, enum name_known b)
{
	return a > b ? a : b;
}

enum name_known verbs_key_known(const struct shadow_context *c, uint32_t lkey, uint32_t rkey)
{
	enum name_known known = NAME_NEW;
	struct key_entry *e;
	struct entry *w;

	keys_each(e, verbs_lkeys, lkey)
		if (e->owner.context == c->number)
			return NAME_OWN;
	if (!rkey) /* no key: what rxe gives a region that nobody else may reach */
		return NAME_NEW;
	keys_each(e, verbs_rkeys, rkey)
		known = worse(known, owner_known(c, e->owner));
	table_each(w, verbs_windows, rkey >> 8)
		known = worse(known, owner_known(c, w->owner));
	return known;
}

enum name_known verbs_window_known(const struct shadow_context *c, uint32_t rkey)
{
	enum name_known known = NAME_NEW;

	for (uint32_t low = 0; low < 256; low++)
		known = worse(known, verbs_key_known(c, 0, (rkey & ~0xffu) | low));
	return known;
}

void verbs_key_remove(const struct shadow_context *c, uint32_t lkey)
{
	struct key_entry *e;

	keys_each(e, verbs_lkeys, lkey)
		if (e->owner.context == c->number)
			e->real = 0; /* the key that no region has */
}
