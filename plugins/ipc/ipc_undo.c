/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adjustments of semaphores (SEM_UNDO) of this process. The agent has noted them (agent/wrap_semaphore.c). Setting a value strikes them in all processes, and who has set one tells the time; where
 * that came after an adjustment began, by another process, nobody knows what is left of it: refused.
 *
 * At a restart the process makes them again, by pairs of operations that leave the value as it is and that the kernel does at once. That
 * makes it the last that has changed the semaphore, so who was it before does the same without an adjustment, later. All threads of a process, this one too, share its adjustments
 * (CLONE_SYSVSEM), and they outlive this thread. Owns nothing.
 */
#include <errno.h>

#include "base/macro.h"
#include "plugins/ipc/ipc.h"

#define VALUE_MAX 32767 /* SEMVMX */

/* ---- dump ---- */

static int unknown(const struct fermata_undo *u)
{
	return fermata_fail(-EOPNOTSUPP, "semaphore set %d was set by semctl while process %u had an adjustment of its semaphore %u (SEM_UNDO)", u->id,
			    fermata_pid(), u->number);
}

static bool was_cleared(const struct ipc_publication *p, const struct fermata_undo *u)
{
	bool cleared = p->cleared_ns >= u->since_ns;

	for (uint64_t i = 0; i < p->clear_count; i++)
		cleared |= p->clears[i].number == u->number && p->clears[i].ns >= u->since_ns;
	return cleared && p->pid != fermata_pid();
}

/* Whether a value was set since, by whom it may be. */
static int check(const struct ipc_object *o, const struct fermata_undo *u)
{
	const struct ipc_publication *p;
	struct timespec day;
	union ipc_state state;
	int64_t known = 0, since_s;
	int r = ipc_look(o, &state);

	for (unsigned int i = 0; !r && (p = ipc_published(o, i)); i++) {
		known = p->changed_s > known ? p->changed_s : known;
		if (was_cleared(p, u))
			r = unknown(u);
	}
	RAW2(SYS_clock_gettime, CLOCK_REALTIME, &day);
	since_s = day.tv_sec - (int64_t)((raw_now_ns() - u->since_ns) / 1000000000u);
	if (!r && state.set.sem_ctime > since_s && state.set.sem_ctime > known + 1)
		r = unknown(u);
	return r;
}

static int put(struct fermata_sink *sink, enum ipc_entry_kind kind, const struct ipc_adjustment *a)
{
	struct ipc_entry head = { kind, sizeof(*a) };
	int r = fermata_sink_write(sink, &head, sizeof(head));

	return r ? r : fermata_sink_write(sink, a, sizeof(*a));
}

static int dump_adjustments(struct fermata_sink *sink)
{
	struct fermata_undo u;
	int r;

	for (unsigned int i = 0; (r = fermata_undo_noted(i, &u)) > 0; i++) {
		const struct ipc_object *o = ipc_object(FERMATA_SYSV_SEMAPHORES, u.id);

		if (!o)
			continue; /* the set has been removed */
		r = check(o, &u);
		if (!r)
			r = put(sink, IPC_ENTRY_UNDO, &(struct ipc_adjustment){ u.id, u.number, u.value });
		if (r)
			return r;
	}
	return r;
}

static int dump_touched(const struct ipc_object *o, struct fermata_sink *sink)
{
	union ipc_state state;
	int r = ipc_look(o, &state);

	for (unsigned int i = 0; !r && i < state.set.sem_nsems; i++)
		if (RAW4(SYS_semctl, o->id, i, GETPID, 0) == (long)fermata_pid())
			r = put(sink, IPC_ENTRY_TOUCH, &(struct ipc_adjustment){ o->id, (uint16_t)i, 0 });
	return r;
}

int ipc_undo_dump(struct fermata_sink *sink)
{
	struct ipc_object *o;
	int r = dump_adjustments(sink);

	for (uint32_t i = 0; !r && (o = ipc_object_at(i)); i++)
		if (o->kind == FERMATA_SYSV_SEMAPHORES && o->undo)
			r = dump_touched(o, sink);
	return r;
}

/* ---- restart ---- */

static int cannot(const struct ipc_adjustment *a, long r)
{
	return fermata_fail((int)r, "semaphore %u of semaphore set %d cannot be adjusted by process %u (errno %d)", a->number, a->id, fermata_pid(), (int)-r);
}

/* Changes it by @by, so adjusting it the other way, and back. @first: by; else what takes it back. */
static long pair(const struct ipc_adjustment *a, int by, int flag, bool first)
{
	struct sembuf there = { a->number, (short)by, (short)(flag | IPC_NOWAIT) }, back = { a->number, (short)-by, IPC_NOWAIT };
	struct sembuf ops[2] = { first ? there : back, first ? back : there };

	return RAW4(SYS_semtimedop, a->id, ops, 2, NULL);
}

/* In between the value stays within 0 and VALUE_MAX: on the one side or the other there is room for a half of that. */
static int make(const struct ipc_adjustment *a)
{
	int left = a->value;

	while (left) {
		int value = (int)RAW4(SYS_semctl, a->id, a->number, GETVAL, 0);
		int up = VALUE_MAX - value, room = value > up ? value : up, by = left < -room ? -room : left > room ? room : left;
		bool rises_first = room == up;
		long r = value < 0 ? value : pair(a, -by, SEM_UNDO, rises_first == (by < 0));

		if (r < 0)
			return cannot(a, r);
		left -= by;
	}
	return 0;
}

int ipc_undo_make(const struct ipc_adjustment *a, uint32_t count)
{
	int r = 0;

	for (uint32_t i = 0; i < count && !r; i++)
		r = make(&a[i]);
	return r;
}

int ipc_undo_touch(const struct ipc_adjustment *a, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int value = (int)RAW4(SYS_semctl, a[i].id, a[i].number, GETVAL, 0);
		long r = value < 0 ? value : pair(&a[i], value ? -1 : 1, 0, true);

		if (r < 0)
			return cannot(&a[i], r);
	}
	return 0;
}
