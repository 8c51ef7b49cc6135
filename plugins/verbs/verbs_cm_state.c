/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm over a checkpoint and a restart. softrdma keeps the state of the channels and gives it as bytes (softrdma/cm_save.c); this file owns the bytes of the
 * newest checkpoint, which come back with the process's memory. That what all processes of the job have saved fits together verbs_cm_drain.c sees to.
 *
 * Restart: RECREATE makes channels, ids, ports, listeners and events; who was asked for a connection waits for the other end. RECONNECT: who
 * asked connects, on whatever host the other end is (softrdma/cm_join.c). REFILL: who was asked accepts. Nobody runs before all have. A port that a stranger has taken meanwhile fails the restart, as a TCP port does.
 */
#include "plugins/verbs/verbs_cm.h"

static struct {
	void *bytes;
	size_t length;
	uint32_t count;
	int fds[]; /* of the channels */
} *saved;
static int door; /* of this life: its port; 0: none is needed; -errno */

/* ---- checkpoint ---- */

static void forget(void)
{
	if (saved)
		fermata_free(saved->bytes);
	fermata_free(saved);
	saved = NULL;
}

int verbs_cm_dump(void)
{
	uint32_t count = 0, i = 0;
	int fd = -1, r;

	forget();
	if (!verbs_backend.softrdma_cm_next)
		return 0;
	r = verbs_cm_hosts_note();
	if (r)
		return r;
	while ((fd = verbs_backend.softrdma_cm_next(fd)) >= 0)
		count++;
	if (!count)
		return 0;
	saved = fermata_alloc(sizeof(*saved) + count * sizeof(saved->fds[0]));
	if (saved)
		saved->length = (size_t)VERBS_DEVICE(verbs_backend.softrdma_cm_save(NULL, 0));
	if (saved)
		saved->bytes = fermata_alloc(saved->length);
	if (!saved || !saved->bytes)
		return fermata_fail(-ENOMEM, "no memory for the rdma_cm channels");
	VERBS_DEVICE(verbs_backend.softrdma_cm_save(saved->bytes, saved->length));
	saved->count = count;
	while ((fd = verbs_backend.softrdma_cm_next(fd)) >= 0)
		saved->fds[i++] = fd;
	return 0;
}

int verbs_cm_saved(uint32_t nth)
{
	return saved && nth < saved->count ? saved->fds[nth] : -1;
}

/* ---- restart ---- */

int verbs_cm_numbers(int (*hold)(int fd))
{
	int r = 0;

	for (uint32_t i = 0; r >= 0 && saved && i < saved->count; i++)
		r = hold(saved->fds[i]);
	return r;
}

int verbs_cm_recreate(void)
{
	int r;

	if (saved && !verbs_backend.softrdma_cm_load)
		return fermata_fail(-EOPNOTSUPP, "process %u has rdma_cm channels, which go on over RoCE and softrdma alone, and there is no RoCE port here: --rdma soft",
				    fermata_pid());
	r = saved ? VERBS_DEVICE(verbs_backend.softrdma_cm_load(saved->bytes, saved->length)) : 0;
	if (r == -EADDRINUSE)
		return fermata_fail(r, "a port of rdma_cm that process %u had is taken by another program", fermata_pid());
	if (r)
		return fermata_fail(r, "the rdma_cm channels cannot be made again (errno %d)", -r);
	door = saved ? VERBS_DEVICE(verbs_backend.softrdma_cm_door()) : 0;
	return verbs_cm_hosts_publish(door < 0 ? 0 : (uint32_t)door);
}

static int join(int accept)
{
	int r = saved ? VERBS_DEVICE(verbs_backend.softrdma_cm_join(accept)) : 0;

	return r ? fermata_fail(r, "an rdma_cm connection cannot be made again (errno %d)", -r) : 0;
}

/* Channels alone, which UCX has for connections that nobody may ever ask it for, lead nowhere. */
static int has_ids(void)
{
	return saved && (!verbs_backend.softrdma_cm_ids || VERBS_DEVICE(verbs_backend.softrdma_cm_ids()));
}

/* Hosts that were on one machine when processes of theirs first opened a device there have one name of a port in common. Which of them a new queue pair is at, which ids tell of, no name says where they have come back apart. */
static int is_split(void)
{
	struct shadow_device *d;
	uint32_t homes[2];

	list_each(d, &verbs_devices, link)
		for (unsigned int i = 1; i <= d->ports; i++)
			if (verbs_homes(verbs_port_first(&d->port[i]), homes, ARRAY_SIZE(homes))) /* but the first of them */
				return 1;
	return 0;
}

int verbs_cm_reconnect(void)
{
	int r;

	if (has_ids() && !verbs_cm_hosts_clear())
		return fermata_fail(-EOPNOTSUPP, "process %u has rdma_cm ids: what was on its host comes back together (not apart by --part), and apart from others of the job only if the user has a key for softrdma's network",
				    fermata_pid());
	if (has_ids() && is_split())
		return fermata_fail(-EOPNOTSUPP, "process %u has rdma_cm ids, and opened its device when hosts of the job had been brought to one machine: its port has the name of another one, and it comes back with all of the job on one machine only (no --host, no --part)",
				    fermata_pid());
	if (door < 0 && !verbs_is_together())
		return fermata_fail(door, "process %u has no TCP port for its rdma_cm connections to other hosts (errno %d)", fermata_pid(), -door);
	verbs_cm_hosts_tell_anew();
	r = saved ? verbs_cm_hosts_tell_doors() : 0;
	return r ? r : join(0);
}

int verbs_cm_refill(void)
{
	return join(1);
}
