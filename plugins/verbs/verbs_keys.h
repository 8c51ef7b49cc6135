/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of regions' keys after a restart, from the program's to those of this life: verbs_keys.c. Read by the data path without a lock; they change at a restart
 * only. A key may stand for several entries, each of another owner.
 */
#pragma once

#include "plugins/verbs/verbs_shadow.h"

struct key_entry {
	uint32_t key, real;
	struct verbs_owner owner; /* member 0: we; context 0: the entry is free */
};
_Static_assert(sizeof(struct key_entry) == 16, "four to a cache line");

struct keys {
	uint32_t mask, count;
	uint64_t factor; /* a key's place: keys_slot */
	uint32_t shift;
	uint32_t steps, longest; /* from its place to where a key lies: of all keys; of the one that is farthest, where every search ends */
	uint32_t again; /* how often a key has met one like itself there; 0: none stands for several entries */
	struct key_entry entries[] __attribute__((aligned(16)));
};

/* Of this life. Our own local ones, which change by one word (verbs_key_remove), and everybody's remote ones, which never do (verbs_names.c). */
extern struct keys *verbs_lkeys HIDDEN, *verbs_rkeys HIDDEN;

/* Of a table of another kind (verbs_table.h): it is half full at most. */
static inline uint32_t verbs_slots_for(uint32_t count)
{
	uint32_t slots = 64;

	while (slots < 2 * (uint64_t)count)
		slots *= 2;
	return slots;
}

/* An empty table in place of *@where, for so many keys; more make it grow. 0 or -ENOMEM. */
int verbs_keys_make(struct keys **where, uint32_t count);
int verbs_keys_add(struct keys **where, uint32_t key, uint32_t real, struct verbs_owner owner);

/* A table in memory of somebody else's that does not grow: its size in bytes; makes it, in zeroed memory; for no more than @count keys. Scattered it is the larger one. */
size_t verbs_keys_size(uint32_t count, int scattered);
void verbs_keys_place(struct keys *t, uint32_t count, int scattered);
void verbs_keys_put(struct keys *t, struct key_entry e);
/* Keys lie where others have theirs: such a table is better scattered. */
int verbs_keys_are_crowded(const struct keys *t);

static inline uint32_t keys_slot(const struct keys *t, uint32_t key)
{
	return (uint32_t)(key * t->factor >> t->shift) & t->mask;
}

/* The next entry of @key from position *@at on, which moves behind it; none lies behind @end. */
static inline struct key_entry *keys_next(struct keys *t, uint32_t key, uint32_t *at, uint32_t end)
{
	while (t && (int32_t)(end - *at) >= 0 && t->entries[*at & t->mask].owner.context) {
		struct key_entry *e = &t->entries[(*at)++ & t->mask];

		if (e->key == key)
			return e;
	}
	return NULL;
}

/* All entries of @wanted in @t, one after another. */
#define keys_each(e, t, wanted)                                                                                    \
	for (uint32_t at_ = (t) ? keys_slot(t, wanted) : 0, end_ = (t) ? at_ + (t)->longest : 0; (e = keys_next(t, wanted, &at_, end_));)
