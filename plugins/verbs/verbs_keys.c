/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The making of the tables of keys. Open addressing. Most devices count regions in a key's upper 24 bits, so a key's place follows these: regions that were made one after another lie side by
 * side, four to a cache line, as their entries do in the device, and a program that goes through its regions meets as few lines here as it does there. Each key has its place for itself then,
 * and the table may be nearly full. Where keys crowd (those of many processes, each of which counts from the same number on; a device that counts in large steps), a hash scatters all of the
 * table, which is half full at most then: each look-up is then a line of its own, but no search is long.
 *
 * A search ends no farther from the key's place than any key lies from its own: keys side by side leave no gap that could end it, and every request of a region that was registered after the
 * restart looks for a key that is not there.
 *
 * A large table is asked for in huge pages: a restart meets one page fault for 512, and the data path as many fewer misses of the TLB.
 */
#include "plugins/verbs/verbs_keys.h"

#include <sys/mman.h>

#define COUNTED_SHIFT 8 /* below it a key has no index */
#define SCATTERED 0x9e3779b97f4a7c15ull
#define STEPS_OK(t) ((t)->count + 64)
#define HUGE_PAGE ((uintptr_t)2 << 20)

static uint32_t room_in(uint32_t slots, uint64_t factor)
{
	return factor == 1 ? slots - slots / 8 : slots / 2;
}

static uint32_t slots_for(uint32_t count, uint64_t factor)
{
	uint32_t slots = 64;

	while (room_in(slots, factor) < count)
		slots *= 2;
	return slots;
}

static size_t size_of(uint32_t slots)
{
	return sizeof(struct keys) + slots * sizeof(struct key_entry);
}

static void keys_begin(struct keys *t, uint32_t slots, uint64_t factor)
{
	t->mask = slots - 1;
	t->factor = factor;
	t->shift = factor == 1 ? COUNTED_SHIFT : 32;
}

static struct keys *keys_alloc(uint32_t slots, uint64_t factor)
{
	size_t size = size_of(slots);
	struct keys *t = fermata_alloc(size);
	uintptr_t from = ALIGN_UP((uintptr_t)t, HUGE_PAGE), to = ALIGN_DOWN((uintptr_t)t + size, HUGE_PAGE);

	if (!t)
		return NULL;
	if (from < to)
		RAW3(SYS_madvise, from, to - from, MADV_HUGEPAGE);
	keys_begin(t, slots, factor);
	return t;
}

void verbs_keys_put(struct keys *t, struct key_entry e)
{
	uint32_t at = keys_slot(t, e.key), away = 0;

	for (; t->entries[at].owner.context; at = (at + 1) & t->mask) {
		t->again += t->entries[at].key == e.key;
		away++;
	}
	t->entries[at] = e;
	t->steps += away;
	t->longest = away > t->longest ? away : t->longest;
	t->count++;
}

static int keys_renew(struct keys **where, uint32_t slots, uint64_t factor)
{
	struct keys *t = *where, *renewed = keys_alloc(slots, factor);

	if (!renewed)
		return -ENOMEM;
	for (uint32_t i = 0; i <= t->mask; i++)
		if (t->entries[i].owner.context)
			verbs_keys_put(renewed, t->entries[i]);
	fermata_free(t);
	*where = renewed;
	return 0;
}

int verbs_keys_are_crowded(const struct keys *t)
{
	return t->factor == 1 && t->steps > STEPS_OK(t);
}

size_t verbs_keys_size(uint32_t count, int scattered)
{
	return size_of(slots_for(count, scattered ? SCATTERED : 1));
}

void verbs_keys_place(struct keys *t, uint32_t count, int scattered)
{
	const uint64_t factor = scattered ? SCATTERED : 1;

	keys_begin(t, slots_for(count, factor), factor);
}

int verbs_keys_make(struct keys **where, uint32_t count)
{
	fermata_free(*where);
	*where = keys_alloc(slots_for(count, 1), 1);
	return *where ? 0 : -ENOMEM;
}

int verbs_keys_add(struct keys **where, uint32_t key, uint32_t real, struct verbs_owner owner)
{
	const struct key_entry e = { .key = key, .real = real, .owner = owner };
	struct keys *t = *where;
	int r = 0;

	if (t->count == room_in(t->mask + 1, t->factor))
		r = keys_renew(where, 2 * (t->mask + 1), t->factor);
	if (r)
		return r;
	verbs_keys_put(*where, e);
	t = *where;
	return verbs_keys_are_crowded(t) ? keys_renew(where, slots_for(t->count, SCATTERED), SCATTERED) : 0;
}
