/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drain of rdma_cm: what has come is taken in until no process of the job has anything left to take in.
 *
 * A command is one device call, which no stop cuts in two: when all threads stand, each command has either been run as a whole (its
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
 * Between hosts a message may be in TCP as well, where nobody sees it. So each end of such a connection publishes how many messages it has said and heard, and is
 * quiet when the other's newest numbers are its own the other way round; softrdma/cm_carry.c argues that, and what changes meanwhile.
 *
 *      round r     takes in, carries; publishes the numbers that have changed since it last did, and which connections are no more; asks
 *      round r + 1 has nothing to take in, and all are quiet: as above. Else asks again, and takes in what has come by the next round
 *
 * How that ends: both ends' numbers grow by what is on its way only, which TCP brings. What it does not bring (the cable is cut) is waited for until the checkpoint's time is over,
 * which then names the connection. One of which the other end tells nothing for a while has one outside of the job, or one that ends while we look: the
 * attempt is refused, and the coordinator makes another.
 *
 * Owns what this process has told in this checkpoint, by name. A time-out that passes meanwhile is looked at after the checkpoint, by GET_EVENT; clocks go on where they were.
 */
#include "plugins/verbs/verbs_cm.h"

#define PATIENCE_NS 250000000ull
#define LATE_ROUNDS 16 /* from here on it is told what is waited for */

struct line_key {
	char kind[8]; /* "verbs/l" */
	uint8_t name[VERBS_CM_NAME];
};

/* Of the end that the key names. */
struct line_value {
	uint32_t pid, round;
	uint32_t said, heard;
	uint32_t gone;
};

struct told {
	uint8_t name[VERBS_CM_NAME];
	uint8_t used, gone;
	uint32_t said, heard;
	uint32_t seen; /* the last round, + 1, in which it was there */
};

static struct {
	struct told *slots;
	uint32_t mask, count;
	uint64_t since_ns;
} drain;

/* ---- what has been told ---- */

static void forget_told(void)
{
	fermata_free(drain.slots);
	memset(&drain, 0, sizeof(drain));
}

static struct told *slot_find(struct told *slots, uint32_t mask, const uint8_t *name)
{
	uint64_t at;

	memcpy(&at, name + 1, sizeof(at));
	while (slots[at & mask].used && memcmp(slots[at & mask].name, name, VERBS_CM_NAME) != 0)
		at++;
	return &slots[at & mask];
}

static int slots_grow(void)
{
	uint32_t size = drain.slots ? (drain.mask + 1) * 2 : 64;
	struct told *more = fermata_alloc(size * sizeof(*more));

	if (!more)
		return -ENOMEM;
	for (uint32_t i = 0; drain.slots && i <= drain.mask; i++)
		if (drain.slots[i].used)
			*slot_find(more, size - 1, drain.slots[i].name) = drain.slots[i];
	fermata_free(drain.slots);
	drain.slots = more;
	drain.mask = size - 1;
	return 0;
}

/* 1: it is new. */
static int told_find(const uint8_t *name, struct told **ret)
{
	if ((!drain.slots || drain.count * 2 > drain.mask) && slots_grow())
		return -ENOMEM;
	*ret = slot_find(drain.slots, drain.mask, name);
	if ((*ret)->used)
		return 0;
	(*ret)->used = 1;
	memcpy((*ret)->name, name, VERBS_CM_NAME);
	drain.count++;
	return 1;
}

/* ---- connections between hosts ---- */

static struct line_key key_of(const uint8_t *name)
{
	struct line_key k = { .kind = "verbs/l" };

	memcpy(k.name, name, sizeof(k.name));
	return k;
}

static int publish_told(const struct told *t, unsigned int round)
{
	struct line_value v = { .pid = fermata_pid(), .round = round, .said = t->said, .heard = t->heard, .gone = t->gone };
	struct line_key k = key_of(t->name);

	return fermata_job_publish(&k, sizeof(k), &v, sizeof(v));
}

static int tell_line(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg)
{
	unsigned int round = *(unsigned int *)arg;
	struct told *t;
	int new = told_find(own, &t);

	if (new < 0)
		return fermata_fail(new, "no memory for the rdma_cm connections");
	t->seen = round + 1;
	if (!new && t->said == said && t->heard == heard && !t->gone)
		return 0;
	t->said = said;
	t->heard = heard;
	t->gone = 0;
	return publish_told(t, round);
}

/* Those that have been told and are there no more: else the other end would go on believing in them. */
static int tell_gone(unsigned int round)
{
	int r = 0;

	for (uint32_t i = 0; drain.slots && !r && i <= drain.mask; i++) {
		struct told *t = &drain.slots[i];

		if (!t->used || t->gone || t->seen == round + 1)
			continue;
		t->gone = 1;
		r = publish_told(t, round);
	}
	return r;
}

static int ask_line(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg)
{
	struct line_key k = key_of(other);

	return fermata_job_ask(&k, sizeof(k));
}

static const struct line_value *newest(const void *name)
{
	const struct line_value *v, *found = NULL;
	struct line_key k = key_of(name);
	size_t len;

	for (unsigned int i = 0; (v = fermata_job_resolve(&k, sizeof(k), i, &len)); i++)
		if (len == sizeof(*v) && (!found || v->round >= found->round))
			found = v;
	return found;
}

/* @arg counts those that are not quiet. */
static int look_at_line(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg)
{
	const struct line_value *v = newest(other);
	unsigned int *busy = arg;

	if (v && !v->gone && v->heard == said && v->said == heard)
		return 0;
	++*busy;
	if (!v && raw_now_ns() - drain.since_ns > PATIENCE_NS)
		return fermata_fail(-EAGAIN, "the rdma_cm connection %s has its other end outside of the job, or that does not answer: start it with "
				    "`fermata launch` and the same --job, or disconnect", where);
	if (!v)
		fermata_waits("the rdma_cm connection %s: its other end is not known yet", where);
	else if (v->gone)
		fermata_waits("the rdma_cm connection %s has ended there, which has not come here yet", where);
	else
		fermata_waits("the rdma_cm connection %s has %d messages on their way", where,
			      (int)(said - v->heard) + (int)(v->said - heard));
	return 0;
}

/* ---- all of them ---- */

static int publish(const void *own, const void *other, int fd, void *arg)
{
	char key[8 + VERBS_CM_NAME] = "verbs/c";
	uint32_t pid = fermata_pid();

	memcpy(key + 8, own, VERBS_CM_NAME);
	return fermata_job_publish(key, sizeof(key), &pid, sizeof(pid));
}

static int ask(const void *own, const void *other, int fd, void *arg)
{
	char key[8 + VERBS_CM_NAME] = "verbs/c";

	memcpy(key + 8, other, VERBS_CM_NAME);
	return fermata_job_ask(key, sizeof(key));
}

static int is_inside(const void *own, const void *other, int fd, void *arg)
{
	char key[8 + VERBS_CM_NAME] = "verbs/c";
	size_t len;

	memcpy(key + 8, other, VERBS_CM_NAME);
	if (fermata_job_resolve(key, sizeof(key), 0, &len))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d: an rdma_cm connection's other end is not in the job, which is not supported: start it with "
			    "`fermata launch` and the same --job, or disconnect", fd);
}

static int tell(unsigned int round)
{
	int r = verbs_backend.softrdma_cm_each(publish, NULL);

	r = r ? r : VERBS_DEVICE(verbs_backend.softrdma_cm_lines(tell_line, &round));
	return r ? r : tell_gone(round);
}

static int has_channels(void)
{
	return verbs_backend.softrdma_cm_next && verbs_backend.softrdma_cm_next(-1) >= 0;
}

/* All programs stand. */
void verbs_cm_quiesce(void)
{
	forget_told();
	if (!has_channels())
		return;
	drain.since_ns = raw_now_ns();
	VERBS_DEVICE((verbs_backend.softrdma_cm_hold(1), 0));
}

int verbs_cm_drain(unsigned int round)
{
	unsigned int busy = 0;
	int r = 0, taken;

	if (!has_channels())
		return FERMATA_DRAINED;
	if (!round)
		drain.since_ns = raw_now_ns();
	taken = VERBS_DEVICE(verbs_backend.softrdma_cm_settle());
	if (taken < 0)
		return fermata_fail(taken, "what has come to the rdma_cm channels cannot be taken in (errno %d)", -taken);
	if (round && !taken)
		r = VERBS_DEVICE(verbs_backend.softrdma_cm_lines(look_at_line, &busy));
	if (round && !taken && !r && !busy)
		return verbs_backend.softrdma_cm_each(is_inside, NULL);
	if (!round || taken)
		r = tell(round);
	r = r ? r : verbs_backend.softrdma_cm_each(ask, NULL);
	r = r ? r : VERBS_DEVICE(verbs_backend.softrdma_cm_lines(ask_line, NULL));
	return r ? r : FERMATA_DRAIN_MORE;
}

void verbs_cm_resume(void)
{
	if (!drain.since_ns)
		return;
	forget_told();
	VERBS_DEVICE((verbs_backend.softrdma_cm_hold(0), 0));
}
