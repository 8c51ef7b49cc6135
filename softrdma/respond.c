/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's side of the engine: the queue pair that a request arrives at, its receives, its keys. Everything
 * here runs in the executor, under the rx_lock of that queue pair.
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
 *
 * Of an extended connection (IBA, annex A14) the queue pair has neither receives nor a completion queue nor a
 * protection domain: each request names a shared queue, in any context of its domain, which has them (o->to, o->rq).
 *
 * Faults: IBA 9.9.3. An unreliable QP drops what it cannot take (class D) and stays as it is, but its own bad receive
 * is an error of its own (class A).
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/engine.h"

/* Moved data is complete before its last bytes appear. */
#define TAIL_BYTES 8

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

/* ---- the operations: a status, or STALL_* ---- */

/* One stretch of the target, its last bytes apart. */
static void stretch(struct pieces *p, uint64_t va, uint64_t len)
{
	uint64_t tail = len > TAIL_BYTES ? TAIL_BYTES : 0;

	p->v[0] = (struct iovec){ (void *)(uintptr_t)va, len - tail };
	p->v[1] = (struct iovec){ (void *)(uintptr_t)(va + len - tail), tail };
	p->n = 2;
}

static int moved(int err)
{
	return err == -ESRCH ? STALL_UNREACHABLE : IBV_WC_REM_OP_ERR;
}

int sr_remote_check(struct sr_run *r, struct op *o, uint32_t access, uint64_t len, uint64_t *ret_va)
{
	/* Too many READs and atomics (IBA 9.9.3): one that keeps nothing for them answers none. */
	if (unlikely(!o->d->dest_rd) && access != IBV_ACCESS_REMOTE_WRITE)
		return sr_refuse(r, o, IBV_WC_REM_INV_REQ_ERR);
	if (!(o->d->access & access) ||
	    sr_rkey_check(o->to->seg, o->w->rkey, o->w->remote_addr, len, access, o->pd, o->d->qpn, ret_va))
		return sr_refuse(r, o, IBV_WC_REM_ACCESS_ERR);
	return IBV_WC_SUCCESS;
}

static int do_write(struct sr_run *r, struct op *o)
{
	struct pieces there;
	uint64_t va;
	int err = sr_remote_check(r, o, IBV_ACCESS_REMOTE_WRITE, o->w->length, &va);

	if (err)
		return err;
	if (o->placed)
		return IBV_WC_SUCCESS;
	stretch(&there, va, o->w->length);
	err = sr_copy(r->ctx, o->to, there.v, o->from, o->local.v, o->w->length);
	return err ? moved(err) : IBV_WC_SUCCESS;
}

static int do_read(struct sr_run *r, struct op *o)
{
	struct iovec there;
	uint64_t va;
	int err = sr_remote_check(r, o, IBV_ACCESS_REMOTE_READ, o->w->length, &va);

	if (err)
		return err;
	there = (struct iovec){ (void *)(uintptr_t)va, o->w->length };
	err = sr_copy(r->ctx, r->src, o->local.v, o->to, &there, o->w->length);
	o->byte_len = (uint32_t)o->w->length;
	return err ? moved(err) : IBV_WC_SUCCESS;
}

static uint64_t atomic_result(const struct sr_wqe *w, uint64_t old)
{
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return old + w->compare_add;
	return old == w->compare_add ? w->swap : old;
}

/* The lock is chosen by the place in the page, which is the same in every mapping of the same memory. */
static int do_atomic(struct sr_run *r, struct op *o)
{
	uint64_t va, old = 0, new;
	struct rlock *lock;
	int err = sr_remote_check(r, o, IBV_ACCESS_REMOTE_ATOMIC, 8, &va);

	if (err)
		return err;
	if (va % 8)
		return sr_refuse(r, o, IBV_WC_REM_INV_REQ_ERR);
	lock = &r->ctx->atomics[va % FM_PAGE_SIZE / 8];
	rlock_acquire(r->ctx, lock, r->ctx->self.token);
	err = sr_copy(r->ctx, &r->ctx->self, &(struct iovec){ &old, 8 }, o->to,
		      &(struct iovec){ (void *)(uintptr_t)va, 8 }, 8);
	new = atomic_result(o->w, old);
	if (!err && new != old)
		err = sr_copy(r->ctx, o->to, &(struct iovec){ (void *)(uintptr_t)va, 8 }, &r->ctx->self,
			      &(struct iovec){ &new, 8 }, 8);
	rlock_release(lock);
	if (!err)
		err = sr_copy(r->ctx, r->src, o->local.v, &r->ctx->self, &(struct iovec){ &old, 8 }, 8);
	o->byte_len = 8;
	return err ? moved(err) : IBV_WC_SUCCESS;
}

/* Room in the ring for @len bytes in one stretch: the position + 1, or 0. */
static uint32_t bounce_take(struct sr_shm_qp *d, uint64_t len)
{
	uint32_t units = (uint32_t)((len + SR_BOUNCE_UNIT - 1) / SR_BOUNCE_UNIT);
	uint32_t at = d->bounce_head, used;

	if (at % SR_BOUNCE_UNITS + units > SR_BOUNCE_UNITS)
		at = ALIGN_UP(at, SR_BOUNCE_UNITS);
	used = at + units - d->bounce_seen;
	if (unlikely(used > SR_BOUNCE_UNITS)) {
		d->bounce_seen = atomic_load_explicit(&d->bounce_tail, memory_order_acquire);
		used = at + units - d->bounce_seen;
	}
	if (used > SR_BOUNCE_UNITS)
		return 0;
	d->bounce_head = at + units;
	return at % SR_BOUNCE_UNITS + 1;
}

int sr_place(struct sr_run *r, struct op *o, uint64_t len, struct pieces *there, struct sr_cqe *c)
{
	struct iovec ring;

	if (len && len <= SR_CQE_DATA && !o->to->local) {
		c->flags |= SR_CQE_INLINED;
		ring = (struct iovec){ c->data, len };
		return sr_copy(r->ctx, &r->ctx->self, &ring, o->from, o->local.v, len);
	}
	if (len && len <= SR_BOUNCE_MAX && o->d->bounce && !o->to->local && !o->rq->xrcd) {
		c->bounce = (uint16_t)bounce_take(o->d, len);
		c->bounce_end = o->d->bounce_head;
	}
	if (!c->bounce)
		return o->placed ? 0 : sr_copy(r->ctx, o->to, there->v, o->from, o->local.v, len);
	ring.iov_base = (char *)sr_at(r->dst->seg, o->d->bounce) + (uint64_t)(c->bounce - 1) * SR_BOUNCE_UNIT;
	ring.iov_len = len;
	return sr_copy(r->ctx, &r->ctx->self, &ring, o->from, o->local.v, len);
}

static int do_send(struct sr_run *r, struct op *o)
{
	struct sr_cqe c = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .byte_len = (uint32_t)o->w->length };
	struct pieces there;
	struct sr_rwqe *w;
	uint32_t slot;
	int err;

	w = sr_rq_peek(r, o, &slot);
	if (!w)
		return STALL_RNR;
	if (unlikely(o->w->length > w->length)) {
		if (o->d->type == IBV_QPT_UC)
			return IBV_WC_REM_INV_REQ_ERR;
		return sr_receive_fault(r, o, slot, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	}
	there.n = 0;
	if (gather(&there, o->to->seg, o->pd, w->sge, w->nsge, o->w->length, IBV_ACCESS_LOCAL_WRITE))
		return sr_receive_fault(r, o, slot, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	err = sr_place(r, o, o->w->length, &there, &c);
	if (err)
		return moved(err);
	if (unlikely(o->w->opcode == IBV_WR_SEND_WITH_INV) &&
	    sr_window_invalidate(r->ctx, o->to->seg, o->w->imm, o->pd, o->d->qpn))
		return sr_receive_fault(r, o, slot, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR);
	if (o->w->opcode != IBV_WR_SEND) {
		c.imm = o->w->imm;
		c.wc_flags = o->w->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : IBV_WC_WITH_INV;
	}
	sr_receive_complete(r, o, &c, slot);
	return IBV_WC_SUCCESS;
}

static int do_write_imm(struct sr_run *r, struct op *o)
{
	struct sr_cqe c = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .imm = o->w->imm,
			    .wc_flags = IBV_WC_WITH_IMM, .byte_len = (uint32_t)o->w->length };
	uint32_t slot;
	int err;

	if (!sr_rq_peek(r, o, &slot))
		return STALL_RNR;
	err = do_write(r, o);
	if (err)
		return err;
	sr_receive_complete(r, o, &c, slot);
	return IBV_WC_SUCCESS;
}

int sr_respond(struct sr_run *r, struct op *o)
{
	switch (o->w->opcode) {
	case IBV_WR_RDMA_WRITE:
		return do_write(r, o);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write_imm(r, o);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return do_send(r, o);
	case IBV_WR_RDMA_READ:
		return do_read(r, o);
	default:
		return do_atomic(r, o);
	}
}
