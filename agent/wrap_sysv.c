/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V semaphores and message queues are not saved: the capsule's IPC namespace has none. Which ones the program uses only the calls
 * tell that ask for an id, so these are noted here; a checkpoint is refused while one of them exists.
 *
 * Owns the noted ids: a slot goes from 0 to id + 1 and back to 0, by compare and swap, so a fork may come at any moment.
 */
#include <errno.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define IDS 128

static _Atomic int64_t semaphores[IDS], queues[IDS];

static int note(_Atomic int64_t *ids, int id)
{
	if (id < 0)
		return id;
	for (size_t i = 0; i < IDS; i++) {
		int64_t free = 0;

		if (atomic_load(&ids[i]) == id + 1ll || atomic_compare_exchange_strong(&ids[i], &free, id + 1ll) || free == id + 1ll)
			return id;
	}
	atomic_store(&ids[IDS - 1], id + 1ll); /* the others are there still: any of them refuses */
	return id;
}

EXPORT int semget(key_t key, int n, int flags)
{
	WRAP_READY(semget);
	return note(semaphores, real.semget(key, n, flags));
}

EXPORT int msgget(key_t key, int flags)
{
	WRAP_READY(msgget);
	return note(queues, real.msgget(key, flags));
}

static bool exists(long r)
{
	return r != -EINVAL && r != -EIDRM;
}

int wrap_sysv_refuse(void)
{
	union {
		struct semid_ds semaphore;
		struct msqid_ds queue;
		char room[256];
	} state;

	for (size_t i = 0; i < IDS; i++) {
		long semaphore = (long)atomic_load(&semaphores[i]) - 1, queue = (long)atomic_load(&queues[i]) - 1;

		if (semaphore >= 0 && exists(RAW4(SYS_semctl, semaphore, 0, IPC_STAT, &state)))
			return fermata_fail(-EOPNOTSUPP, "semaphore set %ld (semget) is not supported yet: remove it before the checkpoint",
					    semaphore);
		if (queue >= 0 && exists(RAW3(SYS_msgctl, queue, IPC_STAT, &state)))
			return fermata_fail(-EOPNOTSUPP, "message queue %ld (msgget) is not supported yet: remove it before the checkpoint",
					    queue);
		atomic_store(&semaphores[i], 0);
		atomic_store(&queues[i], 0);
	}
	return 0;
}
