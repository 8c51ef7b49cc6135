/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the table of the threads that a stop asks. The watch thread fills it, each thread answers in its slot.
 *
 * Slots do not move, since handlers hold their addresses, nor do tables end, in which they look these up. Each attempt of a stop begins anew with the first
 * slot. A handler of an attempt before it may have been held up on its way to its slot, which is another thread's by then: so a state carries its epoch, and
 * only who names both takes the slot.
 *
 * No locks: entries are added by the watch thread alone.
 */
#include "agent/stop_table.h"

#include <string.h>

#define TABLE_FIRST 64u

static struct {
	struct stop_thread **_Atomic all;
	uint32_t count, room;
} table;

static uint64_t state_of(uint32_t epoch, enum stop_state s)
{
	return (uint64_t)epoch << 32 | s;
}

static uint32_t epoch_of(const struct stop_thread *t)
{
	return (uint32_t)(atomic_load(&t->state) >> 32);
}

static int grow(void)
{
	uint32_t room = table.room ? table.room * 2 : TABLE_FIRST;
	struct stop_thread **more = arena_alloc(&agent_arena, room * sizeof(*more));

	if (!more)
		return -1;
	memset(more, 0, room * sizeof(*more));
	if (table.room)
		memcpy(more, table.all, table.room * sizeof(*more));
	atomic_store(&table.all, more);
	table.room = room;
	return 0;
}

void stop_table_clear(void)
{
	table.count = 0;
}

struct stop_thread *stop_slot_new(int tid, uint32_t epoch, uint32_t *ret_slot)
{
	struct stop_thread *t;

	if (table.count == table.room && grow())
		return NULL;
	t = table.all[table.count];
	if (!t)
		t = table.all[table.count] = arena_alloc(&agent_arena, sizeof(*t));
	if (!t)
		return NULL;
	atomic_store(&t->state, state_of(epoch, STOP_FREE));
	t->tid = tid;
	*ret_slot = table.count++;
	return t;
}

struct stop_thread *stop_slot_find(int tid, uint32_t *ret_slot)
{
	for (*ret_slot = 0; *ret_slot < table.count; (*ret_slot)++)
		if (table.all[*ret_slot]->tid == tid)
			return table.all[*ret_slot];
	return NULL;
}

struct stop_thread *stop_slot_at(uint32_t slot)
{
	return table.all[slot];
}

enum stop_state stop_slot_state(const struct stop_thread *t)
{
	return (enum stop_state)(uint32_t)atomic_load(&t->state);
}

void stop_slot_set(struct stop_thread *t, enum stop_state to)
{
	atomic_store(&t->state, state_of(epoch_of(t), to));
}

bool stop_slot_move(struct stop_thread *t, uint32_t epoch, enum stop_state from, enum stop_state to)
{
	uint64_t state = state_of(epoch, from);

	return atomic_compare_exchange_strong(&t->state, &state, state_of(epoch, to));
}

void stop_slot_await_another(const struct stop_thread *t, uint32_t epoch)
{
	while (epoch_of(t) == epoch || stop_slot_state(t) != STOP_ASKED)
		RAW0(SYS_sched_yield);
}

struct stop_thread *stop_thread_at(uint32_t index)
{
	return index < table.count ? table.all[index] : NULL;
}

uint32_t stop_count(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < table.count; i++)
		if (stop_slot_state(table.all[i]) == STOP_STOPPED)
			n++;
	return n;
}
