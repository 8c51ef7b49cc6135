/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm over a checkpoint and a restart. softrdma keeps the state of the channels and gives it as bytes (softrdma/cm_save.c); this file owns the bytes of the
 * newest checkpoint, which come back with the process's memory. That what all processes of the job have saved fits together verbs_cm_drain.c sees to.
 *
 * Restart: RECREATE makes channels, ids, ports, listeners and events; who was asked for a connection waits for the other end. RECONNECT: who
 * asked connects. REFILL: who was asked accepts. Nobody runs before all have. A port that a stranger has taken meanwhile fails the restart, as a TCP port does.
 */
#include "plugins/verbs/verbs_cm.h"

static struct {
	void *bytes;
	size_t length;
	uint32_t count;
	int fds[]; /* of the channels */
} *saved;

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
	return r ? fermata_fail(r, "the rdma_cm channels cannot be made again (errno %d)", -r) : verbs_cm_hosts_publish();
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

int verbs_cm_reconnect(void)
{
	if (has_ids() && !verbs_cm_hosts_together())
		return fermata_fail(-EOPNOTSUPP, "process %u has rdma_cm ids, with which a job comes back in one part only (--part)", fermata_pid());
	verbs_cm_hosts_tell();
	return join(0);
}

int verbs_cm_refill(void)
{
	return join(1);
}
