/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A System V semaphore set: values, and who changed each of them last. While the job stands nobody of it waits at a semaphore (our signal has ended these calls, and they are made again), so who
 * does is a stranger. Owns nothing.
 */
#include <errno.h>

#include "plugins/ipc/ipc.h"

static int refuse_waiter(const struct ipc_object *o, unsigned int number)
{
	return fermata_fail(-EOPNOTSUPP, "a process that is not of the job waits at semaphore %u of semaphore set %d", number, o->id);
}

static int dump_one(const struct ipc_object *o, const struct semid_ds *set, unsigned int number, uint16_t value, struct fermata_sink *sink)
{
	long pid = RAW4(SYS_semctl, o->id, number, GETPID, 0);
	struct ipc_semaphore s = { value, (int32_t)pid };
	int r;

	if (pid < 0)
		return fermata_fail((int)pid, "semaphore set %d cannot be read (errno %d)", o->id, (int)-pid);
	r = ipc_check_user(o, s.pid, ipc_set_used_s(set));
	if (!r && !fermata_in_capsule() && (RAW4(SYS_semctl, o->id, number, GETNCNT, 0) > 0 || RAW4(SYS_semctl, o->id, number, GETZCNT, 0) > 0))
		r = refuse_waiter(o, number);
	return r ? r : fermata_sink_write(sink, &s, sizeof(s));
}

static int dump(const struct ipc_object *o, const struct semid_ds *now, struct ipc_set *set, uint16_t *values, struct fermata_sink *sink)
{
	struct ipc_entry head = { IPC_ENTRY_SET, (uint32_t)(sizeof(*set) + set->count * sizeof(struct ipc_semaphore)) };
	int r = (int)RAW4(SYS_semctl, o->id, 0, GETALL, values);

	if (r < 0)
		return fermata_fail(r, "semaphore set %d cannot be read (errno %d)", o->id, -r);
	r = fermata_sink_write(sink, &head, sizeof(head));
	if (!r)
		r = fermata_sink_write(sink, set, sizeof(*set));
	for (uint32_t i = 0; i < set->count && !r; i++)
		r = dump_one(o, now, i, values[i], sink);
	return r;
}

int ipc_set_dump(const struct ipc_object *o, struct fermata_sink *sink)
{
	struct ipc_set set = { 0 };
	union ipc_state state;
	uint16_t *values;
	int r = ipc_look(o, &state);

	if (!r)
		r = ipc_check_owner(o, &state, &set.owner);
	if (r)
		return r;
	set.count = (uint32_t)state.set.sem_nsems;
	values = fermata_alloc(set.count * sizeof(*values));
	r = values ? dump(o, &state.set, &set, values, sink) : fermata_fail(-ENOMEM, "no memory for semaphore set %d", o->id);
	fermata_free(values);
	return r;
}
