/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drain: after it, no message of a reliable connection is under way and no memory is written by the fabric any more. It is
 * counted, not timed.
 *
 * While all processes stand still nobody posts. For the direction a -> b of a connection let
 *
 *   P  sends that a ever posted which take a receive of b (SEND, SEND with immediate, WRITE with immediate)
 *   T  receives that b ever posted
 *   R  receives of b that have completed, as b has polled them
 *
 * P and T are constants now; both sides publish them in round 0. A reliable connection executes in the order of posting, and what
 * takes a receive waits for one, so exactly E = min(P, T) of them are going to be executed, and everything posted
 * before number E + 1 with them; nothing from number E + 1 on is, before the program runs again. So:
 *
 *   b is quiet when R = E: each executed send has its completion on the receiving side, kept.
 *   a is quiet, when P = E, when all its sends have completed, whatever their kind; an unsignalled tail is closed by a signalled
 *   zero-length write of ours behind it, which completes after it (the device's queues have room for it: verbs_qp.c,
 *   verbs_cq.c).
 *   a is quiet, when P > E, when every signalled send before number E + 1 has completed. From that send on nothing was executed:
 *   if the job goes on they stay where they are, in the device; a restart posts them again from their slots, in order. What is
 *   unsignalled before it is executed, by the order of the connection, and not posted again; but no completion tells when. A write
 *   between number E and number E + 1 may still be under way when b completes number E, and so may what a read fetches. softrdma says how many
 *   sends are not executed (softrdma_sends_left): a is quiet when these are number E + 1 and what is behind it, no more. (Of hardware nobody
 *   can ask that. It has sent all before the one that waits for a receive, but the last acknowledgement may be on the way.)
 *
 * softrdma between hosts has a socket where a cable would be, which changes nothing of this: a request is complete when the other end has
 * acknowledged it, and that acknowledges what it has put in its place, completion included. What a broken connection made it say twice was executed
 * once and has its number. So, all quiet, no bytes in any socket are going to be written anywhere: there are only requests that
 * find no receive, and what was said behind them, which is not taken before these are. The device's thread, which reads the sockets while
 * the image is written, answers those and does nothing else.
 * A cable that is cut meanwhile keeps a from being quiet until its retries are used up, and it is in ERR; if they last longer than the
 * coordinator waits, or for ever, the checkpoint fails and the job goes on.
 *
 * Shared receive queues. b's connections take from one queue, in an order that the device makes, so T of one of them is what comes to it in the end.
 * That is settled, and only then published,
 *
 *   when the shared queue is empty (every receive that was ever posted has completed, seen by b): nobody will get another, and T = R;
 *   or when R = P: the connection needs no more.
 *
 *      a1 --> P = 3 --.                        a1: P = 3, R = 3: settled, T = 3
 *                      >--> b: 4 receives      a2: P = 2, R = 1: settled when the queue is empty, T = 1
 *      a2 --> P = 2 --'
 *
 * While a queue has receives left, every sender with something to send gets one, so each round that is not the last brings a completion: either all sends are executed
 * or the queue becomes empty. Until it is settled a waits, and posts no no-op, which might come to stand behind a send that stays.
 *
 * Hence an executed send, read or atomic is never posted again, and one that was not executed always is. All completions met on the
 * way are kept with the queue and served first.
 *
 * Extended connections (XRC): verbs_drain_xrc.c.
 *
 * Unreliable connections and datagrams (UC, UD). A send completes when the wire has it, receive or not, so a sender is quiet when all of its sends have completed (an
 * unsignalled tail is closed as above; of datagrams by one to nobody). It is never posted again: nothing can come twice. What b gets of it no count
 * tells, for what finds no receive is dropped, there and then. For a connection P is still published, and R = P is the end; else, and for datagrams:
 *
 *      a:  post | completed |                    sends no more: it stands still
 *      wire:        '------- on the way -------> bounded: what is longer on its way than IDLE rounds is not
 *      b:                      round r: none | r + 1: none | r + 2: none      quiet
 *
 * Between hosts softrdma says whether a context has bytes on their way, in its own buffers, in its sockets or not yet acknowledged by the
 * other's kernel (softrdma_on_the_wire); such a round is not an idle one, nor is R = P the end there, which tells nothing of a WRITE. Who had nothing
 * unacknowledged in one round has all of it in the other's socket in the next, which then is busy until it has been taken.
 *
 * Each round is a message to the coordinator and back from all processes, and the coordinator waits longer between them as they become many. On one host
 * softrdma delivers within the call that posts, so nothing is on the way at all. What comes later still is delivered if the job goes on, and was lost by the wire, which these
 * transports allow, if it is restarted.
 *
 * Connections that are not of this kind: in ERR everything posted completes (flushed), so quiet means that nothing is outstanding. To
 * a peer that has not connected back, nothing is executed: quiet at once, all pending. If the peer failed or is not to be
 * found (destroyed, or not of this job) our sends end in errors of the device's in its own time; a timer may be infinite,
 * so after PATIENCE rounds what is left counts as pending. What such a peer sent before it failed or was destroyed may be on its way, and no
 * count tells of it: IDLE rounds as above.
 *
 * SQD. Sends that have begun go on, those behind them do not. Which those are the device says, and a is quiet when that is still: verbs_drain_sqd.c. What b waits for
 * is as many as were executed: that is what a publishes for P, again when it changes. Of a device that does not tell all sends must have completed, and a send that has begun must have ended, or, after
 * PATIENCE rounds, the checkpoint is refused. SQE, of UC and UD: all is flushed, so quiet is as in RTS.
 *
 * Names: "verbs/q" + number + address -> struct side, one value a publication; the newest (highest round) counts.
 */
#include <endian.h>

#include "plugins/verbs/verbs_drain.h"

#define NOT_SETTLED UINT64_MAX

struct side_key {
	char name[8];
	uint64_t address;
	uint32_t number;
	uint32_t reserved;
};

struct side {
	uint32_t pid, round;
	uint32_t dest_number;
	uint32_t state;
	uint64_t sends, receives; /* P and T */
};

static struct side_key key_of(uint32_t number, uint64_t address)
{
	struct side_key k = { .name = "verbs/q", .address = address, .number = number };

	return k;
}

static void refresh(struct shadow_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	memset(&attr, 0, sizeof(attr));
	if (!VERBS_DEVICE(verbs_backend.ibv_query_qp(qp->real, &attr, IBV_QP_STATE, &init)))
		qp->real_state = attr.qp_state;
	else
		qp->real_state = qp->pub.state;
	qp->draining = attr.sq_draining;
}

/*
 * The receives that the peer's sends can count on: T; of a shared queue as many as came to be this connection's, once that is settled, and NOT_SETTLED
 * before.
 */
static uint64_t receives_of(const struct shadow_qp *qp)
{
	if (!qp->pub.srq)
		return atomic_load(&qp->rq.head);
	return !shadow_srq(qp->pub.srq)->posted || (qp->peer == PEER_CONNECTED && qp->received == qp->peer_sends) ? qp->received : NOT_SETTLED;
}

static int publish_side(struct shadow_qp *qp, unsigned int round)
{
	const struct verbs_port *port = verbs_qp_port(qp);
	struct side side = {
		.pid = fermata_pid(),
		.round = round,
		.dest_number = qp->attr.dest_qp_num,
		.state = qp->real_state,
		.sends = qp->told_sends = verbs_sends_of(qp),
		.receives = qp->told = receives_of(qp),
	};
	int r = 0;

	qp->said = qp->real_state;
	for (unsigned int g = 0; !r && g < VERBS_GIDS; g++) {
		struct side_key k = key_of(qp->pub.qp_num, verbs_port_address(port, g));

		if (k.address)
			r = fermata_job_publish(&k, sizeof(k), &side, sizeof(side));
	}
	return r;
}

static int ask_side(struct shadow_qp *qp)
{
	struct side_key k = key_of(qp->attr.dest_qp_num, verbs_qp_address(qp));

	return fermata_job_ask(&k, sizeof(k));
}

/* What the peer said last; constants of the connection go into the queue pair. */
static void look_at_peer(struct shadow_qp *qp)
{
	struct side_key k = key_of(qp->attr.dest_qp_num, verbs_qp_address(qp));
	const struct side *s, *newest = NULL;
	uint64_t receives;
	int apart = 0;
	size_t len;

	for (unsigned int i = 0; (s = fermata_job_resolve(&k, sizeof(k), i, &len)); i++) {
		if (len < sizeof(*s))
			continue;
		if (s->dest_number != qp->pub.qp_num || !(verbs_qp_connected(s->state) || s->state == IBV_QPS_ERR))
			apart = 1;
		else if (!newest || s->round >= newest->round)
			newest = s;
	}
	qp->peer = newest ? newest->state == IBV_QPS_ERR ? PEER_FAILED : PEER_CONNECTED :
		   apart  ? PEER_APART : PEER_UNKNOWN;
	if (!newest)
		return;
	qp->will_send = qp->two_sided < newest->receives ? qp->two_sided : newest->receives;
	qp->peer_sends = newest->sends;
	receives = receives_of(qp);
	qp->will_receive = newest->sends < receives ? newest->sends : receives;
	if (newest->receives == NOT_SETTLED)
		qp->will_send = NOT_SETTLED;
}

static int is_unreliable(const struct shadow_qp *qp)
{
	return qp->pub.qp_type == IBV_QPT_UC || qp->pub.qp_type == IBV_QPT_UD;
}

static int needs_noop(struct shadow_qp *qp)
{
	const struct shadow_cq *cq = shadow_cq(qp->pub.send_cq);

	return qp->real_state == IBV_QPS_RTS && outstanding(&qp->sq) && !verbs_qp_is_xrc(qp) &&
	       (is_unreliable(qp) || (qp->peer != PEER_APART &&
				      (qp->peer != PEER_CONNECTED || qp->will_send == qp->two_sided))) &&
	       !(ring_send(&qp->sq, atomic_load(&qp->sq.head) - 1)->flags & IBV_SEND_SIGNALED) &&
	       cq->noops < (cq->room_cqe ? cq->room_cqe : 1);
}

/* The first outstanding send that was not executed, by count; or head. */
static uint64_t first_blocked(const struct shadow_qp *qp)
{
	uint64_t tail = atomic_load(&qp->sq.tail), head = atomic_load(&qp->sq.head);
	uint64_t number = qp->two_sided + 1, at = head;

	/* backwards, the numbers of the outstanding ones end with P */
	while (at > tail && number > qp->will_send + 1)
		number -= (uint64_t)send_two_sided(ring_send(&qp->sq, --at)->opcode);
	return at;
}

static int sends_quiet(struct shadow_qp *qp)
{
	uint64_t tail = atomic_load(&qp->sq.tail);

	if (qp->will_send == NOT_SETTLED) {
		qp->pending = atomic_load(&qp->sq.head);
		return !outstanding(&qp->sq);
	}
	qp->pending = qp->will_send == qp->two_sided ? atomic_load(&qp->sq.head) : first_blocked(qp);
	for (uint64_t at = tail; at < qp->pending; at++)
		if (qp->will_send == qp->two_sided || ring_send(&qp->sq, at)->flags & IBV_SEND_SIGNALED)
			return 0;
	if (qp->will_send == qp->two_sided || !verbs_backend.softrdma_sends_left)
		return 1;
	return VERBS_DEVICE(verbs_backend.softrdma_sends_left(qp->real)) <= atomic_load(&qp->sq.head) - qp->pending;
}

/*
 * Nothing has come to this queue pair for IDLE rounds, and softrdma, where it is one that can say so (*told), had nothing of the context on
 * its way. Once a round.
 */
static int is_idle(struct shadow_qp *qp, unsigned int round, int *told)
{
	int wire = verbs_backend.softrdma_on_the_wire ? VERBS_DEVICE(verbs_backend.softrdma_on_the_wire(qp->real->context)) : -1;

	qp->idle = round && qp->seen == qp->received && wire <= 0 ? qp->idle + 1 : 0;
	qp->seen = qp->received;
	*told = wire >= 0;
	return qp->idle >= IDLE;
}

static int unreliable_quiet(struct shadow_qp *qp, unsigned int round)
{
	int told, idle = is_idle(qp, round, &told);

	qp->pending = atomic_load(&qp->sq.head);
	if (outstanding(&qp->sq))
		return 0;
	return idle || (!told && qp->peer == PEER_CONNECTED && qp->received == qp->peer_sends);
}

static int qp_quiet(struct shadow_qp *qp, unsigned int round)
{
	int empty = !outstanding(&qp->sq), told;

	qp->pending = atomic_load(&qp->sq.tail);
	if (qp->real_state == IBV_QPS_ERR)
		return (empty && !outstanding(&qp->rq)) || round >= PATIENCE;
	if (!verbs_qp_connected(qp->real_state))
		return 1;
	if (qp->real_state == IBV_QPS_SQD && !empty)
		return verbs_sqd_quiet(qp, round) && (qp->peer != PEER_CONNECTED || is_unreliable(qp) || qp->received == qp->will_receive);
	if (is_unreliable(qp))
		return unreliable_quiet(qp, round);
	if (verbs_qp_is_xrc(qp))
		return verbs_xrc_quiet(qp, round);
	switch (qp->peer) {
	case PEER_CONNECTED:
		return sends_quiet(qp) && qp->received == qp->will_receive;
	case PEER_APART:
		return 1;
	default:
		return (is_idle(qp, round, &told) && empty) || round >= PATIENCE;
	}
}

/* For who waits in vain: what is outstanding, and whose it is. */
static void tell_waiting(const struct shadow_qp *qp)
{
	const struct ibv_ah_attr *to = &qp->attr.ah_attr;
	uint64_t sends = outstanding(&qp->sq), port = to->dlid ? to->dlid : be64toh(to->grh.dgid.global.interface_id);
	const char *kind = to->dlid ? "LID" : "GID ..";

	if (!sends && qp->peer == PEER_CONNECTED && qp->received < qp->will_receive)
		fermata_waits("QP 0x%x has not got %lu of the messages of QP 0x%x (%s 0x%lx)", qp->pub.qp_num,
			      (unsigned long)(qp->will_receive - qp->received), qp->attr.dest_qp_num, kind, (unsigned long)port);
	else if (!sends && is_unreliable(qp))
		fermata_waits("QP 0x%x gets messages still", qp->pub.qp_num);
	else if (!sends)
		fermata_waits("QP 0x%x waits for QP 0x%x (%s 0x%lx)", qp->pub.qp_num, qp->attr.dest_qp_num, kind, (unsigned long)port);
	else if (qp->pub.qp_type == IBV_QPT_UD)
		fermata_waits("QP 0x%x has %lu sends that have not completed", qp->pub.qp_num, (unsigned long)sends);
	else
		fermata_waits("QP 0x%x has %lu sends to QP 0x%x (%s 0x%lx) that have not completed", qp->pub.qp_num,
			      (unsigned long)sends, qp->attr.dest_qp_num, kind, (unsigned long)port);
}

static int qp_drain(struct shadow_qp *qp, unsigned int round, int *more)
{
	int named = qp->pub.qp_type != IBV_QPT_UD, quiet, r = 0; /* datagrams have no peer */

	if (qp->opened)
		return 0;
	refresh(qp);
	if (qp->real_state == IBV_QPS_SQD && outstanding(&qp->sq) && (qp->draining || !verbs_backend.softrdma_sends_left) && round >= PATIENCE)
		return fermata_fail(-EOPNOTSUPP, "QP 0x%x is in state SQD with sends that have not completed, which cannot be saved yet",
				    qp->pub.qp_num);
	if (round == 0) {
		qp->peer = PEER_UNKNOWN;
		qp->will_send = qp->will_receive = qp->peer_sends = 0;
	} else if (verbs_qp_connected(qp->real_state)) {
		if (named)
			look_at_peer(qp);
		if (needs_noop(qp) && verbs_post_noop(qp) == 0 && verbs_cq_keep(shadow_cq(qp->pub.send_cq)) < 0)
			return -ENOMEM;
	}
	if (named && (round == 0 || qp->said != qp->real_state || qp->told != receives_of(qp) ||
		      qp->told_sends != verbs_sends_of(qp)))
		r = publish_side(qp, round);
	quiet = qp_quiet(qp, round);
	if (quiet < 0)
		return quiet;
	if (!quiet || (round == 0 && verbs_qp_connected(qp->real_state))) {
		*more = 1;
		if (!r && named && verbs_qp_connected(qp->real_state))
			r = ask_side(qp);
		if (round >= PATIENCE)
			tell_waiting(qp);
	}
	return r;
}

int verbs_drain(unsigned int round)
{
	struct shadow_context *c;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	int more = 0, r = 0;

	for_each_context(c) {
		list_each(cq, &c->cqs, link)
			if (verbs_cq_keep(cq) < 0)
				return -ENOMEM;
		r = verbs_xrc_tell(c, round);
		if (r)
			return r;
		list_each(qp, &c->qps, link) {
			r = qp_drain(qp, round, &more);
			if (r)
				return r;
		}
	}
	return more ? FERMATA_DRAIN_MORE : FERMATA_DRAINED;
}
