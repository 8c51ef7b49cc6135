/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel does not tell of System V semaphores and message queues: which the program uses (the calls that ask for an id say it), and when it has set a
 * semaphore's value, which strikes everybody's adjustments of it (wrap_semaphore.c). The plugin asks for it (plugins/ipc/).
 *
 * Owns the notes of each kind: an id + 1 goes into a free slot by compare and swap, so a signal handler or a fork may come at any moment. A slot is freed when
 * the plugin finds that there is no such object any more. What is inherited by a fork is the child's, too; an exec forgets all.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define IDS 4096u

struct note {
	_Atomic int64_t id; /* + 1; 0: free */
	_Atomic uint64_t cleared_ns; /* of a semaphore set: CLOCK_MONOTONIC of the last SETALL; SETVAL: wrap_semaphore.c */
	_Atomic int64_t changed_s; /* and the time of day of the last call that changed its time of change */
};

static struct notes {
	struct note notes[IDS];
	_Atomic uint32_t used; /* slots at or beyond it have never been taken */
	_Atomic bool lost;
} kinds[FERMATA_SYSV_KINDS];

static struct note *note_make(struct notes *n, int id)
{
	for (uint32_t i = 0; i < IDS; i++) {
		uint32_t used = atomic_load(&n->used);
		int64_t free = 0;

		if (atomic_load(&n->notes[i].id) != id + 1ll && !atomic_compare_exchange_strong(&n->notes[i].id, &free, id + 1ll) &&
		    free != id + 1ll)
			continue;
		while (used < i + 1 && !atomic_compare_exchange_weak(&n->used, &used, i + 1))
			;
		return &n->notes[i];
	}
	n->lost = true;
	return NULL;
}

static int note(int kind, int id)
{
	if (id >= 0 && agent.active)
		note_make(&kinds[kind], id);
	return id;
}

int fermata_sysv_noted(int kind, unsigned int nth, struct fermata_sysv_note *ret)
{
	struct notes *n = &kinds[kind];

	if (n->lost)
		return fermata_fail(-EOPNOTSUPP, "process %u uses more than %u semaphore sets or message queues", agent.pid, IDS);
	for (uint32_t i = 0, used = atomic_load(&n->used); i < used; i++) {
		int64_t id = atomic_load(&n->notes[i].id) - 1;

		if (id < 0 || nth--)
			continue;
		*ret = (struct fermata_sysv_note){ (int32_t)id, n->notes[i].cleared_ns, n->notes[i].changed_s };
		return 1;
	}
	return 0;
}

void fermata_sysv_forget(int kind, int id)
{
	struct notes *n = &kinds[kind];

	for (uint32_t i = 0, used = atomic_load(&n->used); i < used; i++)
		if (atomic_load(&n->notes[i].id) == id + 1ll) {
			n->notes[i].cleared_ns = 0;
			n->notes[i].changed_s = 0;
			atomic_store(&n->notes[i].id, 0);
		}
}

EXPORT int semget(key_t key, int n, int flags)
{
	WRAP_READY(semget);
	return note(FERMATA_SYSV_SEMAPHORES, real.semget(key, n, flags));
}

EXPORT int msgget(key_t key, int flags)
{
	WRAP_READY(msgget);
	return note(FERMATA_SYSV_QUEUES, real.msgget(key, flags));
}

static bool changes(int command)
{
	return command == SETVAL || command == SETALL || command == IPC_SET;
}

/* The time is noted before the change: who sees the change and then calls for an adjustment is later. */
static void note_change(int id, int number, int command)
{
	struct note *n = note_make(&kinds[FERMATA_SYSV_SEMAPHORES], id);
	struct timespec now;

	if (!n)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	n->changed_s = now.tv_sec;
	if (command == SETALL || (command == SETVAL && !wrap_undo_note_clear(id, number, raw_now_ns())))
		n->cleared_ns = raw_now_ns();
}

static void forget(int id)
{
	fermata_enter();
	fermata_sysv_forget(FERMATA_SYSV_SEMAPHORES, id);
	fermata_undo_forget(id);
	fermata_leave();
}

EXPORT int semctl(int id, int number, int command, ...)
{
	va_list ap;
	void *arg;
	int r;

	WRAP_READY(semctl);
	va_start(ap, command);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!changes(command) || !agent.active) {
		r = real.semctl(id, number, command, arg);
		if (command == IPC_RMID && !r)
			forget(id);
		return r;
	}
	fermata_enter();
	note_change(id, number, command);
	r = real.semctl(id, number, command, arg);
	if (!r && command != IPC_SET)
		wrap_undo_clear(id, command == SETALL ? -1 : number);
	fermata_leave();
	return r;
}
