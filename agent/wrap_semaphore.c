/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adjustments of System V semaphores (SEM_UNDO): what the kernel will add to a semaphore when this process ends. It does not show them, so the calls that
 * make them are noted: semop and semtimedop, but not through libc's syscall().
 *
 * Such a call may wait, and its adjustment must be noted if, and only if, it has been done. So it is a system call of our own (arch/): a thread stands before it, in it, or
 * behind its note. One that a handler of the program's has interrupted on its way back from the kernel is taken to have done nothing.
 *
 * Owns the table of adjustments of the process, by set and number; a free slot is taken by compare and swap, and given back when the set is removed, so signal handlers may come at any moment.
 * SETVAL and SETALL strike adjustments, in all processes (wrap_sysv.c): when this one has called for that is noted, too. A fork's child has none, an exec keeps them: they go to the new
 * program as text in its environment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/semop.h"
#include "agent/wrap.h"

#define SLOTS 2048u

struct slot {
	_Atomic uint64_t name; /* id << 16 | number, + 1; 0: free */
	_Atomic int32_t sum;
	_Atomic uint64_t since_ns; /* when it has become other than 0 */
	_Atomic uint64_t cleared_ns; /* when this process last set the semaphore's value; 0: never */
};

static struct slot slots[SLOTS];
static _Atomic uint32_t used;
static _Atomic bool lost;

static uint64_t name_of(int id, uint16_t number)
{
	return ((uint64_t)(uint32_t)id << 16 | number) + 1;
}

static struct slot *slot_take(uint64_t name)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t high = atomic_load(&used);
		uint64_t free = 0;

		if (atomic_load(&slots[i].name) != name && !atomic_compare_exchange_strong(&slots[i].name, &free, name) && free != name)
			continue;
		while (high < i + 1 && !atomic_compare_exchange_weak(&used, &high, i + 1))
			;
		return &slots[i];
	}
	return NULL;
}

static void note(int id, uint16_t number, int sum, uint64_t since_ns)
{
	struct slot *s = sum ? slot_take(name_of(id, number)) : NULL;

	if (s && !atomic_fetch_add(&s->sum, sum))
		s->since_ns = since_ns;
	lost |= sum && !s;
}

int fermata_undo_noted(unsigned int nth, struct fermata_undo *ret)
{
	if (lost)
		return fermata_fail(-EOPNOTSUPP, "process %u has used SEM_UNDO with more than %u System V semaphores", agent.pid, SLOTS);
	for (uint32_t i = 0, high = atomic_load(&used); i < high; i++) {
		uint64_t name = atomic_load(&slots[i].name) - 1;

		if (!slots[i].sum || nth--)
			continue;
		*ret = (struct fermata_undo){ (int32_t)(name >> 16), (uint16_t)name, (int16_t)slots[i].sum, slots[i].since_ns };
		return 1;
	}
	return 0;
}

int fermata_cleared_noted(int id, unsigned int nth, struct fermata_undo *ret)
{
	for (uint32_t i = 0, high = atomic_load(&used); i < high; i++) {
		uint64_t name = atomic_load(&slots[i].name) - 1;

		if ((int)(name >> 16) != id || !slots[i].cleared_ns || nth--)
			continue;
		*ret = (struct fermata_undo){ .id = id, .number = (uint16_t)name, .since_ns = slots[i].cleared_ns };
		return 1;
	}
	return 0;
}

bool wrap_undo_note_clear(int id, int number, uint64_t now)
{
	struct slot *s = slot_take(name_of(id, (uint16_t)number));

	if (s)
		s->cleared_ns = now;
	return s;
}

void wrap_undo_clear(int id, int number)
{
	for (uint32_t i = 0, high = atomic_load(&used); i < high; i++) {
		uint64_t name = atomic_load(&slots[i].name) - 1;

		if ((int)(name >> 16) == id && (number < 0 || (uint16_t)name == number))
			atomic_store(&slots[i].sum, 0);
	}
}

void fermata_undo_forget(int id)
{
	for (uint32_t i = 0, high = atomic_load(&used); i < high; i++)
		if ((int)((atomic_load(&slots[i].name) - 1) >> 16) == id) {
			slots[i].sum = 0;
			slots[i].cleared_ns = 0;
			atomic_store(&slots[i].name, 0);
		}
}

void fermata_undo_restarted(void)
{
	for (uint32_t i = 0, high = atomic_load(&used); i < high; i++)
		slots[i].since_ns = raw_now_ns();
}

void wrap_undo_forked(void)
{
	memset(slots, 0, used * sizeof(slots[0]));
	used = 0;
	lost = false;
}

static bool has_undo(const struct sembuf *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i].sem_flg & SEM_UNDO)
			return true;
	return false;
}

static int semop_noted(int id, struct sembuf *ops, size_t n, const struct timespec *timeout)
{
	long r = arch_semop(id, ops, n, timeout);
	uint64_t now = raw_now_ns();

	for (size_t i = 0; !r && i < n; i++)
		if (ops[i].sem_flg & SEM_UNDO)
			note(id, ops[i].sem_num, -ops[i].sem_op, now);
	fermata_leave();
	if (!r)
		return 0;
	errno = (int)-r;
	return -1;
}

EXPORT int semop(int id, struct sembuf *ops, size_t n)
{
	WRAP_READY(semop);
	if (!agent.active || !has_undo(ops, n))
		return real.semop(id, ops, n);
	return semop_noted(id, ops, n, NULL);
}

int wrap_semtimedop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout)
{
	if (!agent.active || !has_undo(ops, n))
		return real.semtimedop(id, ops, n, timeout);
	return semop_noted(id, ops, n, timeout);
}

/* ---- exec ---- */

#define NAME "FERMATA_UNDO="

void wrap_undo_put(char *entry, size_t size)
{
	struct fermata_undo u;
	size_t at;

	entry[0] = 0;
	if (!lost && fermata_undo_noted(0, &u) <= 0)
		return;
	at = (size_t)fm_format(entry, size, NAME);
	for (unsigned int i = 0; !lost && fermata_undo_noted(i, &u) > 0 && at < size; i++)
		at += (size_t)fm_format(entry + at, size - at, "%d,%u,%d,%lu;", u.id, u.number, u.value, u.since_ns);
	if (lost || at >= size)
		fm_format(entry, size, NAME "?");
}

void wrap_undo_init(void)
{
	const char *text = getenv("FERMATA_UNDO");
	char *end;

	for (; text && *text && *text != '?'; text = end + 1) {
		long id = strtol(text, &end, 10), number = strtol(end + 1, &end, 10), value = strtol(end + 1, &end, 10);

		note((int)id, (uint16_t)number, (int)value, (uint64_t)strtol(end + 1, &end, 10));
		if (*end != ';')
			break;
	}
	lost |= text && *text;
	unsetenv("FERMATA_UNDO");
}
