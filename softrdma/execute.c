/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: runs the requests of a send queue, in order, each to its end. Whoever holds the queue's sq_lock is
 * its executor: the owner when it posts or polls, or the process at the other end when it has posted the receive
 * that the queue was waiting for. The executor does both halves, requester and responder:
 *
 *   check own keys -> lock the target's rx_lock -> check QP, keys, receive -> move data
 *   -> push the receive's completion -> pop the receive -> unlock -> push the send's completion -> head + 1
 *
 * Locks are taken in this order: a QP's sq_lock, then one rx_lock at a time, then an SRQ's, then the windows' or one
 * CQ's. All are robust. What a dead executor leaves is one request that was or was not completed: the completion in the queue
 * decides (sr_sq_lock, sr_rx_lock). Only completions are ever repeated work; a request that was cut off is run
 * again by the owner, whose peer is then the dead one, so it fails as unreachable.
 *
 * A request that cannot go on now leaves the queue stalled: the reason is in q->stall, and peer_waits of the QP at
 * the other end is set *before* a last look, while the other end posts *before* it looks at peer_waits: one of
 * both sees the other.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/engine.h"

/* Receiver-not-ready timers of the InfiniBand encoding, in units of 10 us. */
static const uint16_t rnr_timer[32] = { 65535, 1,   2,   3,   4,   6,	8,    12,   16,	  24,	32,
					48,    64,  96,  128, 192, 256, 384,  512,  768,  1024, 1536,
					2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

struct sr_shm_rq *sr_srq_find(struct sr_seg *seg, uint32_t srqn)
{
	uint64_t off = atomic_load_explicit(&seg->srq_off[srqn % SR_MAX_SRQ], memory_order_acquire);

	return off && srqn >> SR_QP_BITS == seg->index && srqn % SR_MAX_QP < SR_MAX_SRQ ? sr_at(seg, off) : NULL;
}

struct sr_shm_qp *sr_qp_find(struct sr_seg *seg, uint32_t qpn)
{
	uint64_t off = atomic_load_explicit(&seg->qp_off[qpn % SR_MAX_QP], memory_order_acquire);

	return off && qpn >> SR_QP_BITS == seg->index ? sr_at(seg, off) : NULL;
}

void sr_sq_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	uint32_t head;

	if (likely(!rlock_acquire(ctx, &q->sq_lock, ctx->self.token)) || !q->qpn)
		return;
	head = atomic_load(&q->sq_head);
	/* In the ring, or polled already: then the ring may have gone round. */
	if (head != atomic_load(&q->sq_tail) && q->send_cq &&
	    (sr_cq_contains(ctx, sr_at(owner->seg, q->send_cq), q->qpn, head, 0) ||
	     (int32_t)(atomic_load(&q->sq_freed) - head) > 0))
		atomic_store(&q->sq_head, head + 1);
	atomic_store(&q->stall, SR_STALL_NONE); /* the head will say again if it waits */
}

static int is_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

int sr_local_prepare(struct sr_run *r, struct op *o)
{
	struct sr_wqe *w = o->w;
	uint32_t access = w->opcode == IBV_WR_RDMA_READ || is_atomic(w->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
	int datagram = r->q->type == IBV_QPT_UD;

	o->from = r->src;
	if (w->length > (datagram ? SR_MTU : SR_MAX_MSG))
		return IBV_WC_LOC_LEN_ERR;
	if (is_atomic(w->opcode) && w->length != 8)
		return IBV_WC_LOC_LEN_ERR;
	o->local.n = (uint32_t)datagram; /* the header goes first */
	if (w->flags & IBV_SEND_INLINE) {
		o->from = &r->ctx->self;
		o->local.v[o->local.n++] = (struct iovec){ w->sge, w->length };
		return IBV_WC_SUCCESS;
	}
	if (gather(&o->local, r->src->seg, r->q->pd, w->sge, w->nsge, w->length, access))
		return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

/*
 * With rx_lock held. What comes for another port or partition is not heard. Of an unreliable
 * one nobody asks whom it is connected to.
 */
int sr_responds(struct sr_shm_qp *q, struct sr_shm_qp *d)
{
	uint32_t state = atomic_load_explicit(&d->state, memory_order_relaxed), epoch;

	if (d->qpn != q->dest_qpn || d->type != q->type + (q->type == IBV_QPT_XRC_SEND) ||
	    (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE))
		return 0;
	if (d->site != q->dest_site || !sr_pkeys_match(q->pkey, d->pkey))
		return 0;
	if (q->type == IBV_QPT_UC)
		return 1;
	if (d->dest_qpn != q->qpn || d->dest_site != q->site)
		return 0;
	epoch = atomic_load_explicit(&d->epoch, memory_order_relaxed);
	if (!q->peer_epoch)
		q->peer_epoch = epoch;
	return q->peer_epoch == epoch;
}

static int respond_ordered(struct sr_run *r, struct op *o)
{
	if (unlikely(r->q->type == IBV_QPT_XRC_SEND))
		return sr_xrc_respond(r, o);
	o->to = r->dst;
	o->rq = sr_at(r->dst->seg, o->d->rq);
	o->pd = o->d->pd;
	return sr_respond(r, o);
}

/* Tells the responder that we wait, then looks once more. */
static int wait_there(struct sr_run *r, struct op *o, int status)
{
	atomic_store(&o->d->peer_waits, 1);
	if (status != STALL_RNR)
		return status;
	if (o->rq->shared)
		atomic_store(&o->rq->waiters, 1);
	r->q->min_rnr_timer = o->d->own_rnr_timer;
	return respond_ordered(r, o);
}

/* The first message: one who has not moved to RTS yet may want to know (IBA 11.6.3.1). rx_lock held. */
void sr_established(struct sr_run *r, struct sr_shm_qp *d)
{
	d->established = 1;
	if (atomic_load(&d->state) == IBV_QPS_RTR)
		sr_async_push(r->ctx, r->dst->seg, IBV_EVENT_COMM_EST, d->number);
}

static int execute_connected(struct sr_run *r, struct op *o)
{
	int unreliable = r->q->type == IBV_QPT_UC, status = STALL_UNREACHABLE;

	o->d = r->dst ? sr_qp_find(r->dst->seg, r->q->dest_qpn) : NULL;
	if (!o->d || !sr_peer_alive_lately(r->ctx, r->dst))
		return unreliable ? IBV_WC_SUCCESS : STALL_UNREACHABLE;
	sr_rx_lock(r->ctx, r->dst, o->d);
	if (sr_responds(r->q, o->d))
		status = respond_ordered(r, o);
	if (unlikely(!o->d->established && status >= 0))
		sr_established(r, o->d);
	if (unlikely(status < 0 && !unreliable))
		status = wait_there(r, o, status);
	rlock_release(&o->d->rx_lock);
	/* Nobody answers an unreliable one: what was dropped is done, too (IBA 9.8.2). */
	return unreliable ? IBV_WC_SUCCESS : status;
}

static int execute(struct sr_run *r, struct sr_wqe *w, uint32_t *ret_len)
{
	struct op o;
	int status;

	if (unlikely(sr_is_local_request(w)))
		return sr_window_request(r, w);
	o.w = w;
	o.byte_len = 0;
	o.data = OP_TO_MOVE;
	status = sr_local_prepare(r, &o);
	if (status)
		return status;
	status = r->q->type == IBV_QPT_UD ? sr_ud_send(r, &o) : execute_connected(r, &o);
	*ret_len = o.byte_len;
	return status;
}

static uint16_t wc_opcode(uint32_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

/* -EOVERFLOW: its completion is lost. */
int sr_complete(struct sr_run *r, struct sr_wqe *w, uint32_t seq, int status, uint32_t len)
{
	struct sr_shm_qp *q = r->q;
	struct sr_cqe c;
	int lost = 0;

	if (status || (w->flags & IBV_SEND_SIGNALED) || (q->flags & SR_QP_SIG_ALL)) {
		c = (struct sr_cqe){ .wr_id = w->wr_id, .status = (uint16_t)status, .opcode = wc_opcode(w->opcode),
				     .byte_len = len, .qpn = q->qpn, .seq = seq, .number = q->number };
		lost = sr_cq_push(r->ctx, r->src, sr_at(r->src->seg, q->send_cq), &c, 0);
	}
	atomic_store_explicit(&q->sq_head, seq + 1, memory_order_release);
	atomic_store_explicit(&q->stall, SR_STALL_NONE, memory_order_release);
	return lost;
}

uint64_t sr_rnr_ns(uint32_t timer)
{
	return rnr_timer[timer % 32] * 10000ull;
}

static uint64_t retry_interval(struct sr_shm_qp *q, int why)
{
	if (why == STALL_RNR)
		return sr_rnr_ns(q->min_rnr_timer);
	return 4096ull << (q->timeout ? q->timeout % 32 : 14);
}

/* The head cannot go on. 0: it waits; else the status that it fails with. */
static int stalled(struct sr_run *r, int why)
{
	struct sr_shm_qp *q = r->q;
	uint32_t kind = why == STALL_RNR ? SR_STALL_RNR : SR_STALL_UNREACHABLE;
	uint64_t now, next;

	if (atomic_load(&q->stall) != kind) {
		atomic_store(&q->stall, kind);
		q->tries = 0;
		atomic_store(&q->next_try, 0);
		if (kind == SR_STALL_RNR && !q->rnr_retry)
			return IBV_WC_RNR_RETRY_EXC_ERR;
	}
	if (!r->mine) /* the clock is the owner's */
		return 0;
	now = raw_now_ns();
	next = atomic_load(&q->next_try);
	if (next && now < next)
		return 0;
	if (next)
		q->tries++;
	atomic_store(&q->next_try, now + retry_interval(q, why));
	if (kind == SR_STALL_RNR)
		return q->rnr_retry != 7 && q->tries >= q->rnr_retry ? IBV_WC_RNR_RETRY_EXC_ERR : 0;
	if (!q->timeout) /* for ever, but not on the dead */
		return r->dst && !sr_peer_alive(r->ctx, r->dst) ? IBV_WC_RETRY_EXC_ERR : 0;
	return q->tries > q->retry_cnt ? IBV_WC_RETRY_EXC_ERR : 0;
}

static int is_reliable(const struct sr_shm_qp *q)
{
	return q->type != IBV_QPT_UC && q->type != IBV_QPT_UD;
}

/* A reliable QP ends; of an unreliable one only the send queue stops, until its owner goes on (IBA 10.3.1.6). 1: it was no error before. */
static int enter_error(struct sr_shm_qp *q)
{
	int was = (int)atomic_load(&q->state);

	if (is_reliable(q))
		atomic_store(&q->state, IBV_QPS_ERR);
	else if (was == IBV_QPS_RTS)
		atomic_store(&q->state, IBV_QPS_SQE);
	return was != IBV_QPS_ERR;
}

void sr_fail(struct sr_run *r, struct sr_wqe *w, uint32_t number, int status)
{
	struct sr_shm_qp *q = r->q;
	int news, lost;

	sr_rx_lock(r->ctx, r->src, q);
	news = enter_error(q);
	rlock_release(&q->rx_lock);
	lost = sr_complete(r, w, number, status, 0);
	if (!lost && !is_reliable(q))
		return;
	sr_rx_lock(r->ctx, r->src, q);
	sr_rx_fail(r->ctx, r->src, q);
	if (lost && news)
		sr_async_push(r->ctx, r->src->seg, IBV_EVENT_QP_FATAL, q->number);
	rlock_release(&q->rx_lock);
}

/* A queue whose completions are lost is of no use any more (IBA 11.6.3.2). */
void sr_fatal(struct sr_run *r)
{
	sr_rx_lock(r->ctx, r->src, r->q);
	sr_rx_fatal(r->ctx, r->src, r->q);
	rlock_release(&r->q->rx_lock);
}

/* The send queue has come to rest: nothing that was begun is left. */
void sr_drained(struct sr_run *r)
{
	if (r->q->draining == SR_DRAIN_NOTIFY && atomic_load(&r->q->state) == IBV_QPS_SQD)
		sr_async_push(r->ctx, r->src->seg, IBV_EVENT_SQ_DRAINED, r->q->number);
	r->q->draining = SR_DRAINED;
}

/* May the head be executed? SQD lets what waits in the middle end. */
static int runs(struct sr_shm_qp *q, uint32_t state)
{
	return state == IBV_QPS_RTS || (state == IBV_QPS_SQD && q->draining && atomic_load(&q->stall) != SR_STALL_NONE);
}

/* The next request, if several can be executed at once, and those behind it. How many were. */
static uint32_t run_several(struct sr_run *r, uint32_t head)
{
	uint32_t tail = atomic_load_explicit(&r->q->sq_tail, memory_order_relaxed), n, i;

	if (likely(tail - head < 2) || sr_sq_slot(r->src->seg, r->q, head)->opcode != IBV_WR_RDMA_WRITE)
		return 0;
	n = sr_batch_run(r, head, tail);
	for (i = 0; i < n; i++)
		if (unlikely(sr_complete(r, sr_sq_slot(r->src->seg, r->q, head + i), head + i, IBV_WC_SUCCESS, 0))) {
			sr_fatal(r);
			return i + 1;
		}
	return n;
}

void sr_run(struct sr_run *r)
{
	struct sr_shm_qp *q = r->q;
	uint32_t head, state, len;
	struct sr_wqe *w;
	int status;

	while ((head = atomic_load_explicit(&q->sq_head, memory_order_relaxed)) !=
	       atomic_load_explicit(&q->sq_tail, memory_order_relaxed)) {
		w = sr_sq_slot(r->src->seg, q, head);
		state = atomic_load_explicit(&q->state, memory_order_acquire);
		len = 0;
		if (state == IBV_QPS_RTS && run_several(r, head))
			continue;
		if (likely(runs(q, state)))
			status = execute(r, w, &len);
		else if (state == IBV_QPS_ERR || state == IBV_QPS_SQE)
			status = IBV_WC_WR_FLUSH_ERR;
		else
			break;
		if (status < 0) {
			status = stalled(r, status);
			if (!status)
				return;
		}
		if (unlikely(status && status != IBV_WC_WR_FLUSH_ERR))
			sr_fail(r, w, head, status);
		else if (unlikely(sr_complete(r, w, head, status, len)))
			sr_fatal(r);
	}
	if (unlikely(q->draining))
		sr_drained(r);
}
