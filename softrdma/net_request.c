/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's side of a queue pair that leads to another host. Its send ring is the window:
 *
 *   sq_head            oldest that is not complete
 *   acked, read_done   behind the last one that the other end has executed; behind the last READ or atomic answered
 *   next, next_offset  what is to be sent next; a NAK or a break takes it back
 *   sent               behind the furthest one that was ever begun: what may be acknowledged
 *   sq_tail            behind the last one posted
 *
 * A request is complete when it is before acked and, if it is a READ or an atomic, before read_done. A fault (its own keys, a NAK, the
 * clock) belongs to one number and is told when that has become the oldest.
 *
 * This file: beginning, completing, flushing, and the clock. net_send.c puts the requests into frames, net_reply.c takes what the other end
 * says to them.
 *
 * All of it is under the connection's lock; the ring's heads change under sq_lock, too.
 */
#include <errno.h>
#include "base/sys.h"
#include "softrdma/net_request.h"

#define INTERVAL_MIN_NS NET_MS
#define LOST_NS NET_SECOND
#define LATE_ACK_NS (60 * NET_MS) /* a kernel may keep an acknowledgement back for 40 ms */
#define FOREVER_LOOK_NS (100 * NET_MS) /* timeout 0 */

static uint64_t net_interval(const struct net_qp *n)
{
	uint32_t t = n->qp->shm->timeout;
	uint64_t ns = 4096ull << t % 32;

	if (!t)
		return FOREVER_LOOK_NS;
	return ns < INTERVAL_MIN_NS ? INTERVAL_MIN_NS : ns;
}

/* ---- beginning and ending ---- */

void net_request_start(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint32_t tail = atomic_load(&q->sq_tail), state = atomic_load(&q->state);

	if (atomic_load(&q->sq_head) == tail || (state != IBV_QPS_RTS && state != IBV_QPS_SQD))
		return;
	if (list_empty(&n->busy_link)) {
		n->progress_ns = net_now();
		n->tries = 0;
		list_add_tail(&c->busy, &n->busy_link);
		if (!n->unreliable)
			net_timer_set(c->net, n->progress_ns + net_interval(n));
		else
			net_timer_set(c->net, n->progress_ns + LOST_NS);
	}
	if (n->wait == NET_GOES && !net_is_stopped(n) && n->next != tail && list_empty(&n->send_link))
		list_add_tail(&c->sending, &n->send_link);
}

/* Its queue is in error, or ends: it sends nothing more. sq_lock held. */
void net_stop(struct net_conn *c, struct net_qp *n)
{
	if (c->source == NET_FROM_REQUEST)
		net_spill(c, n);
	list_del(&n->send_link);
	net_busy_end(n);
}

/* sq_lock held. */
static void flush(struct net_conn *c, struct net_qp *n)
{
	struct sr_run r = net_run_of(c, n);

	net_stop(c, n);
	sr_run(&r);
	n->next = n->acked = n->sent = atomic_load(&n->qp->shm->sq_head);
	n->next_offset = n->reads = n->atomics = n->fault = 0;
}

void net_flush(struct net_conn *c, struct net_qp *n)
{
	struct sr_context *ctx = net_ctx(c);

	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	if (atomic_load(&n->qp->shm->state) == IBV_QPS_ERR)
		flush(c, n);
	rlock_release(&n->qp->shm->sq_lock);
}

static int is_complete(const struct net_conn *c, const struct net_qp *n, uint32_t number)
{
	if (!net_before(number, n->acked))
		return 0;
	return n->unreliable || !net_is_answered(net_wqe(c, n, number)) || net_before(number, n->read_done);
}

static void one_complete(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_wqe *w = net_wqe(c, n, number);
	struct sr_run r = net_run_of(c, n);

	if (c->source == NET_FROM_REQUEST && c->source_qp == n && c->source_number == number)
		net_spill(c, n);
	if (sr_complete(&r, w, number, IBV_WC_SUCCESS, net_is_answered(w) ? (uint32_t)w->length : 0))
		sr_fatal(&r);
}

/* sq_lock held. */
static void fault_tell(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_run r = net_run_of(c, n);

	if (c->source == NET_FROM_REQUEST)
		net_spill(c, n);
	sr_fail(&r, net_wqe(c, n, number), number, (int)n->fault);
	flush(c, n);
}

static void drained(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	struct sr_run r = net_run_of(c, n);

	if (q->draining && !net_has_begun(n))
		sr_drained(&r);
}

/* Completes what can be, in order. sq_lock held. */
static void complete_locked(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint32_t head = atomic_load(&q->sq_head), first = head;

	while (head != atomic_load(&q->sq_tail) && is_complete(c, n, head))
		one_complete(c, n, head++);
	if (net_before(n->next, head)) {
		n->next = head;
		n->next_offset = 0;
	}
	if (head != first) {
		n->progress_ns = net_now();
		n->tries = n->rnr_tries = 0;
	}
	if (atomic_load(&q->state) == IBV_QPS_ERR) {
		flush(c, n);
		return;
	}
	if (n->fault && head == n->fault_at) {
		fault_tell(c, n, head);
		return;
	}
	if (head == atomic_load(&q->sq_tail))
		net_busy_end(n);
	if (q->draining)
		drained(c, n);
}

void net_complete(struct net_conn *c, struct net_qp *n)
{
	struct sr_context *ctx = net_ctx(c);

	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	complete_locked(c, n);
	rlock_release(&n->qp->shm->sq_lock);
	net_request_start(c, n);
}

void net_request_run(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;

	if (atomic_load(&q->state) == IBV_QPS_ERR || atomic_load(&q->state) == IBV_QPS_SQE)
		flush(c, n);
	else if (q->draining)
		drained(c, n);
	net_request_start(c, n);
}

void net_request_fault(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	net_fault_set(n, number, IBV_WC_LOC_PROT_ERR);
	net_complete(c, n);
}

/* ---- the clock ---- */

/* Is anybody there? A host's kernel answers for itself; who asks for a queue pair that is gone is told so. */
static void ping(struct net_conn *c, struct net_qp *n)
{
	const struct net_frame f = { .type = NET_PING, .to = n->dest_qpn, .from = n->qpn, .life = n->life,
				     .seq = atomic_load(&n->qp->shm->sq_head) - n->base, .site = n->dest_site,
				     .pkey = n->qp->shm->pkey };

	net_frame_put(c, &f, 0);
}

static void exceeded(struct net_conn *c, struct net_qp *n, int answers)
{
	net_fault_set(n, atomic_load(&n->qp->shm->sq_head), IBV_WC_RETRY_EXC_ERR);
	net_complete(c, n);
	c->given_up |= !answers; /* the next one begins with a new connection */
}

/* What cannot be sent for a while is lost. */
static uint64_t unreliable_clock(struct net_conn *c, struct net_qp *n, uint64_t now)
{
	if (c->state == NET_UP)
		return 0;
	if (now < n->progress_ns + LOST_NS)
		return n->progress_ns + LOST_NS;
	list_del(&n->send_link);
	n->next = atomic_load(&n->qp->shm->sq_tail);
	n->acked = n->next;
	n->next_offset = 0;
	net_complete(c, n);
	return 0;
}

/* A queue that was told to drain holds what it has not begun. */
static int under_way(const struct net_qp *n)
{
	const struct sr_shm_qp *q = n->qp->shm;

	return atomic_load(&q->state) == IBV_QPS_RTS || net_has_begun(n);
}

uint64_t net_request_clock(struct net_conn *c, struct net_qp *n, uint64_t now)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint64_t interval = net_interval(n);
	int answers, heard = 0;

	if (n->unreliable)
		return unreliable_clock(c, n, now);
	if (!under_way(n)) {
		net_busy_end(n);
		return 0;
	}
	if (n->wait == NET_WAITS_RNR) {
		if (now < n->resume_ns)
			return n->resume_ns;
		n->wait = NET_GOES;
		n->progress_ns = now;
		net_request_start(c, n);
	}
	if (now < n->progress_ns + interval)
		return n->progress_ns + interval;
	n->progress_ns = now;
	answers = net_host_answers(c, interval < LATE_ACK_NS ? LATE_ACK_NS : interval);
	if (answers)
		c->refused = 0;
	else
		answers = heard = net_probe(c, now, interval);
	if (answers && n->wait == NET_GOES)
		n->tries = 0;
	else if (q->timeout ? ++n->tries > q->retry_cnt : c->refused) {
		exceeded(c, n, answers);
		return 0;
	}
	c->given_up |= heard && net_tcp_waits(c);
	n->wait = NET_GOES;
	net_request_start(c, n);
	ping(c, n);
	return now + interval;
}
