/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives, as those who execute requests see them: taken from a queue pair's own queue or a shared one, completed, flushed; and
 * the lock of the responding half, with what a dead holder has left. Everything here runs in the executor, under the rx_lock of
 * the queue pair that it is about.
 *
 * A receive of a QP's own queue stays at the head until its completion is pushed. One of a shared queue is taken
 * under the queue's lock and is then "in hand" (d->in_hand), so that requests of several QPs move their data side by
 * side; a request that is dropped leaves it in hand for the next. A QP that goes into error flushes the receive in hand.
 *
 * What says that a receive is used is its completion, from the one store on that makes it be (cq.c). Who takes rx_lock from
 * a dead executor asks whether that store was made: the completion lies in the ring, or its owner has polled it, which
 * he notes in his own words (the queue's "polled", the slot's "round") before its place can be used again. Who
 * takes a shared queue's lock finds by in_hand of the QP that was popping whether the receive left the queue. All words that
 * repair looks at are stored one by one in the order that it relies on.
 */
#include <errno.h>

#include "softrdma/engine.h"

/* ---- the lock, and what a dead holder left ---- */

/* The shared queue that @q has a receive of in hand. @p: its context, to be put back. */
static struct sr_shm_rq *in_hand_find(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q,
				      struct sr_peer **ret_peer)
{
	struct sr_shm_rq *rq = NULL;
	struct sr_peer *p;

	if (q->type != IBV_QPT_XRC_RECV) {
		*ret_peer = owner;
		return sr_at(owner->seg, q->rq);
	}
	p = sr_peer_get(ctx, q->in_hand_srqn >> SR_QP_BITS);
	if (p)
		rq = sr_srq_find(p->seg, q->in_hand_srqn);
	if (!rq)
		sr_peer_put(ctx, p);
	*ret_peer = p;
	return rq;
}

static void in_hand_put(struct sr_context *ctx, struct sr_peer *owner, struct sr_peer *p)
{
	if (p != owner)
		sr_peer_put(ctx, p);
}

static uint64_t cq_of(const struct sr_shm_qp *q, const struct sr_shm_rq *rq)
{
	return rq->xrcd ? rq->cq : q->recv_cq;
}

/* Taken from a dead popper: had it got the receive at the head? */
static void pop_repair(struct sr_context *ctx, struct sr_shm_rq *rq)
{
	uint32_t head = atomic_load(&rq->head);
	struct sr_shm_qp *by;
	struct sr_peer *p;

	if (!rq->pop_qpn || rq->pop_seq != head)
		return;
	p = sr_peer_get(ctx, rq->pop_qpn >> SR_QP_BITS);
	by = p ? sr_qp_find(p->seg, rq->pop_qpn) : NULL;
	if (by && atomic_load(&by->in_hand) == rq->avail[head & rq->mask] + 1)
		atomic_store(&rq->head, head + 1);
	sr_peer_put(ctx, p);
}

static void srq_lock(struct sr_context *ctx, struct sr_shm_rq *rq)
{
	if (unlikely(rlock_acquire(ctx, &rq->lock, ctx->self.token)))
		pop_repair(ctx, rq);
}

/* Of a shared queue. */
static void in_hand_repair(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	uint32_t hand = atomic_load(&q->in_hand), seq = atomic_load(&q->rx_seq);
	struct sr_shm_rq *rq;
	struct sr_peer *p;

	if (!hand) { /* a number may be left out */
		atomic_store(&q->rx_seq, seq + 1);
		return;
	}
	rq = in_hand_find(ctx, owner, q, &p);
	if (!rq)
		return;
	/* Before in_hand goes, no dead popper of it may be left. */
	srq_lock(ctx, rq);
	rlock_release(&rq->lock);
	if (sr_cq_contains(ctx, sr_at(p->seg, cq_of(q, rq)), q->qpn, seq, 1) ||
	    atomic_load(&sr_rq_slot(rq, hand - 1)->round) != atomic_load(&q->in_hand_round)) {
		atomic_store(&q->in_hand, 0);
		atomic_store(&q->rx_seq, seq + 1);
	}
	in_hand_put(ctx, owner, p);
}

static void rx_repair(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	struct sr_shm_rq *rq = sr_at(owner->seg, q->rq);
	uint32_t head;

	if (q->type == IBV_QPT_XRC_RECV || rq->shared) {
		in_hand_repair(ctx, owner, q);
		return;
	}
	head = atomic_load(&rq->head);
	if (q->recv_cq && (sr_cq_contains(ctx, sr_at(owner->seg, q->recv_cq), q->qpn, head, 1) ||
			   atomic_load(&rq->polled) == head + 1))
		atomic_store(&rq->head, head + 1);
}

void sr_rx_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	if (unlikely(rlock_acquire(ctx, &q->rx_lock, ctx->self.token)) && q->qpn)
		rx_repair(ctx, owner, q);
}

/* ---- receives ---- */

/* -EOVERFLOW: the completion is lost. */
static int receive_complete(struct sr_context *ctx, struct sr_peer *to, struct sr_shm_qp *d, struct sr_shm_rq *rq,
			    struct sr_cqe *c, uint32_t slot, int solicited)
{
	int lost;

	c->wr_id = sr_rq_slot(rq, slot)->wr_id;
	c->qpn = d->qpn;
	c->number = d->number;
	c->seq = rq->shared ? atomic_load_explicit(&d->rx_seq, memory_order_relaxed)
			    : atomic_load_explicit(&rq->head, memory_order_relaxed);
	c->rq_slot = slot + 1;
	if (unlikely(rq->xrcd)) {
		c->number = rq->number;
		c->flags |= SR_CQE_SRQ;
	}
	lost = sr_cq_push(ctx, to, sr_at(to->seg, cq_of(d, rq)), c, solicited);
	if (!rq->shared) {
		atomic_store_explicit(&rq->head, c->seq + 1, memory_order_release);
		__builtin_prefetch(sr_rq_slot(rq, sr_rq_number(rq, c->seq + 1)));
		return lost;
	}
	atomic_store_explicit(&d->in_hand, 0, memory_order_release);
	atomic_store_explicit(&d->rx_seq, c->seq + 1, memory_order_release);
	return lost;
}

void sr_in_hand_flush(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	struct sr_cqe c = { .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV };
	struct sr_shm_rq *rq;
	struct sr_peer *p;

	if (!q->in_hand)
		return;
	rq = in_hand_find(ctx, owner, q, &p);
	if (rq) {
		receive_complete(ctx, p, q, rq, &c, q->in_hand - 1, 1);
		in_hand_put(ctx, owner, p);
	}
	q->in_hand = 0;
}

static void srq_pop(struct op *o, uint32_t head, uint32_t slot)
{
	struct sr_shm_rq *rq = o->rq;

	atomic_store_explicit(&rq->pop_qpn, o->d->qpn, memory_order_release);
	atomic_store_explicit(&rq->pop_seq, head, memory_order_release);
	atomic_store_explicit(&o->d->in_hand_srqn, o->w->target, memory_order_release);
	atomic_store_explicit(&o->d->in_hand_round, atomic_load(&sr_rq_slot(rq, slot)->round), memory_order_release);
	atomic_store_explicit(&o->d->in_hand, slot + 1, memory_order_release);
	atomic_store_explicit(&rq->head, head + 1, memory_order_release);
}

struct sr_rwqe *sr_rq_peek(struct sr_run *r, struct op *o, uint32_t *ret_slot)
{
	struct sr_shm_rq *rq = o->rq;
	uint32_t head;

	if (unlikely(o->d->in_hand && rq->xrcd && o->d->in_hand_srqn != o->w->target))
		sr_in_hand_flush(r->ctx, r->dst, o->d);
	if (o->d->in_hand) {
		*ret_slot = o->d->in_hand - 1;
		return sr_rq_slot(rq, *ret_slot);
	}
	if (rq->shared)
		srq_lock(r->ctx, rq);
	head = atomic_load_explicit(&rq->head, memory_order_relaxed);
	if (head == rq->tail_seen && head == (rq->tail_seen = atomic_load(&rq->tail))) {
		if (rq->shared)
			rlock_release(&rq->lock);
		return NULL;
	}
	*ret_slot = sr_rq_number(rq, head);
	if (rq->shared) {
		srq_pop(o, head, *ret_slot);
		rlock_release(&rq->lock);
	}
	return sr_rq_slot(rq, *ret_slot);
}

static void srq_limit_check(struct sr_run *r, struct op *o)
{
	struct sr_shm_rq *rq = o->rq;
	uint32_t limit;

	if (likely(!atomic_load_explicit(&rq->limit, memory_order_relaxed)))
		return;
	/* Told first, disarmed then: one who dies between has it told twice, not never. */
	srq_lock(r->ctx, rq);
	limit = atomic_load(&rq->limit);
	if (limit && atomic_load(&rq->tail) - atomic_load(&rq->head) < limit) {
		sr_async_push(r->ctx, o->to->seg, IBV_EVENT_SRQ_LIMIT_REACHED, rq->number);
		atomic_compare_exchange_strong(&rq->limit, &limit, 0);
	}
	rlock_release(&rq->lock);
}

void sr_receive_complete(struct sr_run *r, struct op *o, struct sr_cqe *c, uint32_t slot)
{
	int lost = receive_complete(r->ctx, o->to, o->d, o->rq, c, slot, o->w->flags & IBV_SEND_SOLICITED);

	if (o->rq->shared)
		srq_limit_check(r, o);
	if (unlikely(lost)) {
		sr_rx_fatal(r->ctx, r->dst, o->d);
		r->failed = o->d->qpn;
		r->failed_in = r->dst;
	}
}

void sr_rx_fail(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	struct sr_shm_rq *rq = sr_at(owner->seg, q->rq);
	struct sr_cqe c;
	uint32_t head;

	atomic_store(&q->state, IBV_QPS_ERR);
	sr_in_hand_flush(ctx, owner, q);
	if (rq->shared) {
		if (!q->last_told)
			sr_async_push(ctx, owner->seg, IBV_EVENT_QP_LAST_WQE_REACHED, q->number);
		q->last_told = 1;
		return;
	}
	while ((head = atomic_load(&rq->head)) != atomic_load(&rq->tail)) {
		c = (struct sr_cqe){ .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV };
		receive_complete(ctx, owner, q, rq, &c, sr_rq_number(rq, head), 1);
	}
}

void sr_rx_fatal(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	int news = atomic_load(&q->state) != IBV_QPS_ERR;

	sr_rx_fail(ctx, owner, q);
	if (news)
		sr_async_push(ctx, owner->seg, IBV_EVENT_QP_FATAL, q->number);
}

/* The QP is in error: its send queue wants flushing when the executor holds no other. */
static void failed(struct sr_run *r, struct op *o)
{
	sr_rx_fail(r->ctx, r->dst, o->d);
	r->failed = o->d->qpn;
	r->failed_in = r->dst;
}

int sr_refuse(struct sr_run *r, struct op *o, enum ibv_wc_status status)
{
	if (o->d->type == IBV_QPT_UC)
		return status;
	failed(r, o);
	sr_async_push(r->ctx, r->dst->seg,
		      status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, o->d->number);
	return status;
}

int sr_receive_fault(struct sr_run *r, struct op *o, uint32_t slot, enum ibv_wc_status local,
		     enum ibv_wc_status remote)
{
	struct sr_cqe c = { .status = local, .opcode = IBV_WC_RECV };

	/* First, so that who polls the completion finds the error and can end the flush if we die. */
	atomic_store(&o->d->state, IBV_QPS_ERR);
	receive_complete(r->ctx, o->to, o->d, o->rq, &c, slot, 1);
	failed(r, o);
	return remote;
}
