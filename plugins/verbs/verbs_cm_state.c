/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm over a checkpoint and a restart. softrdma keeps the state of the channels and gives it as bytes (softrdma/cm_save.c); this file owns the bytes of the
 * newest checkpoint, which come back with the process's memory, and sees to it that what all processes of the job have saved fits together.
 *
 * Checkpoint. A command is one device call, which no stop cuts in two: when all threads stand, each command has either been run as a whole (its
 * message is in the other end's socket, its answer in the program's memory, under its names) or has not begun. One that waits for an event waits outside the call, and
 * finds after a restart the descriptor readable or not, and its channel by the serial number that it has. So all that is under way between two processes lies in sockets:
 *
 *      a (stands)                socket                       b (stands)
 *      REQ_SENT              ... REQ ...>  listener's queue   takes it in: REQ_RCVD, CONNECT_REQUEST queued
 *      REP_RCVD, RTU said    ... RTU ...>                     takes it in: ESTABLISHED queued
 *      DREQ_SENT             <.. DREQ ..>                     both have said it: DISCONNECTED queued, on both sides
 *      id destroyed          ... end ...>                     REJECTED or DISCONNECTED queued
 *
 * Taking in is what GET_EVENT does and a kernel does at once; a checkpoint that fails leaves nothing behind of it but that. It may answer (nobody wants the
 * request) or end a connection, so rounds go on until one in which nobody has taken in anything: then no socket between two processes of the job has anything
 * left in it, and what one end believes of a connection is what the other has said. Each connection's name is published meanwhile; one whose other end nobody has published
 * leads out of the job, and the checkpoint is refused.
 *
 *      round r     takes in; publishes its connections, asks for their other ends
 *      round r + 1 takes in nothing: all asked for are there, or refused. (Else as round r.)
 *
 * A time-out that passes meanwhile is looked at after the checkpoint, by GET_EVENT; clocks go on where they were.
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

static int publish(const void *own, const void *other, int fd, void *arg)
{
	char key[8 + VERBS_CM_NAME] = "verbs/c";
	uint32_t pid = fermata_pid();
	int r;

	memcpy(key + 8, own, VERBS_CM_NAME);
	r = fermata_publish(key, sizeof(key), &pid, sizeof(pid));
	memcpy(key + 8, other, VERBS_CM_NAME);
	return r ? r : fermata_ask(key, sizeof(key));
}

static int is_inside(const void *own, const void *other, int fd, void *arg)
{
	char key[8 + VERBS_CM_NAME] = "verbs/c";
	size_t len;

	memcpy(key + 8, other, VERBS_CM_NAME);
	if (fermata_resolve(key, sizeof(key), 0, &len))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d: an rdma_cm connection's other end is not in the job, which is not supported: start it with "
			    "`fermata launch` and the same --job, or disconnect", fd);
}

int verbs_cm_drain(unsigned int round)
{
	int r, taken;

	if (!verbs_backend.softrdma_cm_next || verbs_backend.softrdma_cm_next(-1) < 0)
		return FERMATA_DRAINED;
	taken = VERBS_DEVICE(verbs_backend.softrdma_cm_settle());
	if (taken < 0)
		return fermata_fail(taken, "what has come to the rdma_cm channels cannot be taken in (errno %d)", -taken);
	if (round && !taken)
		return verbs_backend.softrdma_cm_each(is_inside, NULL);
	r = verbs_backend.softrdma_cm_each(publish, NULL);
	return r ? r : FERMATA_DRAIN_MORE;
}

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
	int fd = -1;

	forget();
	if (!verbs_backend.softrdma_cm_next)
		return 0;
	while ((fd = verbs_backend.softrdma_cm_next(fd)) >= 0)
		count++;
	if (!count)
		return 0;
	saved = fermata_alloc(sizeof(*saved) + count * sizeof(saved->fds[0]));
	if (saved)
		saved->length = (size_t)verbs_backend.softrdma_cm_save(NULL, 0);
	if (saved)
		saved->bytes = fermata_alloc(saved->length);
	if (!saved || !saved->bytes)
		return fermata_fail(-ENOMEM, "no memory for the rdma_cm channels");
	verbs_backend.softrdma_cm_save(saved->bytes, saved->length);
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

int verbs_cm_hold(void)
{
	int r = 0;

	for (uint32_t i = 0; !r && saved && i < saved->count; i++)
		r = verbs_hold_number(saved->fds[i]);
	return r ? fermata_fail(r, "the rdma_cm channels cannot get their numbers (errno %d)", -r) : 0;
}

int verbs_cm_recreate(void)
{
	int r;

	if (saved && !verbs_backend.softrdma_cm_load)
		return fermata_fail(-EOPNOTSUPP, "process %u has rdma_cm channels of softrdma, which no kernel's device can go on with: --rdma soft",
				    fermata_pid());
	r = saved ? VERBS_DEVICE(verbs_backend.softrdma_cm_load(saved->bytes, saved->length)) : 0;
	if (r == -EADDRINUSE)
		return fermata_fail(r, "a port of rdma_cm that process %u had is taken by another program", fermata_pid());
	return r ? fermata_fail(r, "the rdma_cm channels cannot be made again (errno %d)", -r) : 0;
}

static int join(int accept)
{
	int r = saved ? VERBS_DEVICE(verbs_backend.softrdma_cm_join(accept)) : 0;

	return r ? fermata_fail(r, "an rdma_cm connection cannot be made again (errno %d)", -r) : 0;
}

int verbs_cm_reconnect(void)
{
	return join(0);
}

int verbs_cm_refill(void)
{
	return join(1);
}
