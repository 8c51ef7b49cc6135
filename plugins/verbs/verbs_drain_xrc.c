/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drain of extended connections. a's sends to one target name shared receive queues, each its own, of processes that need not be the target's; so
 * no two ends have two counts to compare. What tells is a's device, which says how many sends of a queue are not executed (softrdma_sends_left), and the queue that
 * the first of them is for.
 *
 *      a:  | executed | blocked, for queue s | behind it |        L = sends left
 *                      ^ head - L                   ^ head
 *
 * a is quiet when L was the same in the last round, every signalled send before the first of the L has completed, and
 *
 *   L = 0: all is executed;
 *   or that first one takes a receive and its queue s is empty: everything ever posted there has completed, seen by who owns it. While all stand still nobody
 *   posts, so nothing of the L is executed before the program runs again.
 *
 * Between hosts the answer to that first one may be on the way, for it took the last receive. Therefore a waits for one of two things more. Either it is answered
 * once more that there is no receive (softrdma_refusals): what is answered so was not executed, and is not sent again before that answer has come. Or
 * nothing has been on the wire for IDLE rounds, as its clock for the next try is slow: who had nothing unacknowledged in one has all of it in the
 * other's socket in the next.
 *
 * Who owns the queues has no word in it. A send was executed in the round before a was quiet, or earlier; its receive's completion was in the device's queue before a's
 * own, so each process has polled and kept it in the round in which a, last of all, is quiet.
 *
 * The L are posted again at a restart, from their slots, in their order; what is before them never, signalled or not. No no-op is needed: the device tells of
 * unsignalled tails as well.
 *
 * A device that does not tell leaves no way: there a must have nothing outstanding, or the checkpoint is refused. A target that has not connected back, or is
 * not found, executes nothing: as in verbs_drain.c.
 *
 * Names: "verbs/s" + number + address -> struct level, the newest (highest round) counts.
 */
#include "plugins/verbs/verbs_drain.h"

struct level_key {
	char name[8];
	uint64_t address;
	uint32_t number;
	uint32_t reserved;
};

struct level {
	uint32_t pid, round;
	uint32_t posted;
	uint32_t reserved;
};

static struct level_key key_of(uint32_t number, uint64_t address)
{
	struct level_key k = { .name = "verbs/s", .address = address, .number = number };

	return k;
}

static int publish_level(const struct shadow_context *c, struct shadow_srq *srq, unsigned int round)
{
	const struct level level = { .pid = fermata_pid(), .round = round, .posted = srq->posted };
	int r = 0;

	srq->told = srq->posted;
	for (unsigned int p = 1; p <= c->device->ports; p++)
		for (unsigned int g = 0; !r && g < VERBS_GIDS; g++) {
			struct level_key k = key_of(srq->number, verbs_port_address(&c->device->port[p], g));

			if (k.address)
				r = fermata_job_publish(&k, sizeof(k), &level, sizeof(level));
		}
	return r;
}

int verbs_xrc_tell(struct shadow_context *c, unsigned int round)
{
	struct shadow_srq *srq;
	int r = 0;

	list_each(srq, &c->srqs, link)
		if (!r && srq->xrcd && (!round || srq->told != srq->posted))
			r = publish_level(c, srq, round);
	return r;
}

/* 1: it is empty; 0: it is not, or nobody has said so yet, and is asked. */
static int is_empty(const struct shadow_qp *qp, uint32_t number)
{
	struct level_key k = key_of(number, verbs_qp_address(qp));
	const struct level *l, *newest = NULL;
	size_t len;
	int r;

	for (unsigned int i = 0; (l = fermata_job_resolve(&k, sizeof(k), i, &len)); i++)
		if (len >= sizeof(*l) && (!newest || l->round >= newest->round))
			newest = l;
	if (newest && !newest->posted)
		return 1;
	r = fermata_job_ask(&k, sizeof(k));
	return r < 0 ? r : 0;
}

/* Nothing was executed since the last round. */
static int stands_still(struct shadow_qp *qp, unsigned int round)
{
	uint64_t left = sends_left(qp);
	int same = round && qp->left == left;

	if (!same)
		qp->blocked = 0;
	qp->left = left;
	return same;
}

/* The queue that the first send is for is empty: was it that when the other end answered last? */
static int is_refused(struct shadow_qp *qp)
{
	int wire = VERBS_DEVICE(verbs_backend.softrdma_on_the_wire(qp->real->context));
	uint32_t refusals = VERBS_DEVICE(verbs_backend.softrdma_refusals(qp->real));

	if (wire < 0)
		return 1;
	if (!qp->blocked) {
		qp->blocked = 1;
		qp->refusals = refusals;
		qp->idle = 0;
	}
	qp->idle = wire ? 0 : qp->idle + 1;
	return refusals != qp->refusals || qp->idle > IDLE;
}

int verbs_xrc_quiet(struct shadow_qp *qp, unsigned int round)
{
	uint64_t head = atomic_load(&qp->sq.head);
	const struct verbs_send *first;
	int still, r;

	if (qp->pub.qp_type == IBV_QPT_XRC_RECV)
		return 1;
	still = stands_still(qp, round);
	qp->pending = head - qp->left;
	for (uint64_t at = atomic_load(&qp->sq.tail); at < qp->pending; at++)
		if (ring_send(&qp->sq, at)->flags & IBV_SEND_SIGNALED)
			return 0;
	if (!still)
		return 0;
	if (!qp->left || qp->peer == PEER_APART)
		return 1;
	if (!verbs_backend.softrdma_sends_left)
		return round < PATIENCE ? 0 : fermata_fail(-EOPNOTSUPP, "QP 0x%x (XRC) has sends that have not completed; the device does not "
							   "tell which of them were executed", qp->pub.qp_num);
	if (qp->peer != PEER_CONNECTED)
		return round >= PATIENCE;
	first = ring_send(&qp->sq, qp->pending);
	r = send_two_sided(first->opcode) ? is_empty(qp, first->qkey) : 0;
	return r > 0 ? is_refused(qp) : r;
}
