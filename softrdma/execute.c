/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: runs the requests of a send queue, in order, each to its end. Whoever holds the queue's sq_lock is
 * its executor: the owner when it posts or polls, or the process at the other end when it has posted the receive
 * that the queue was waiting for. The executor does both halves, requester and responder:
 *
 *   check own keys -> lock the target's rx_lock -> check QP, keys, receive -> move data
 *   -> push the receive's completion -> pop the receive -> unlock -> push the send's completion -> head + 1
 *
 * Locks are taken in this order: a QP's sq_lock, then one rx_lock at a time, then an SRQ's, then one CQ's. All are
 * robust. What a dead executor leaves is one request that was or was not completed: the completion in the queue
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
#include "softrdma/device.h"

#define STALL_RNR (-1)
#define STALL_UNREACHABLE (-2)

/* Moved data is complete before its last bytes appear. */
#define TAIL_BYTES 8

/* Receiver-not-ready timers of the InfiniBand encoding, in units of 10 us. */
static const uint16_t rnr_timer[32] = { 65535, 1,   2,   3,   4,   6,	8,    12,   16,	  24,	32,
					48,    64,  96,  128, 192, 256, 384,  512,  768,  1024, 1536,
					2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

struct sr_shm_qp *sr_qp_find(struct sr_seg *seg, uint32_t qpn)
{
	uint64_t off = atomic_load_explicit(&seg->qp_off[qpn % SR_MAX_QP], memory_order_acquire);

	return off && qpn >> SR_QP_BITS == seg->index ? sr_at(seg, off) : NULL;
}

void sr_sq_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	uint32_t head;

	if (likely(!rlock_acquire(ctx, &q->sq_lock, ctx->self.token)))
		return;
	head = atomic_load(&q->sq_head);
	if (q->qpn && head != atomic_load(&q->sq_tail) &&
	    sr_cq_contains(ctx, sr_at(owner->seg, q->send_cq), q->qpn, head, 0))
		atomic_store(&q->sq_head, head + 1);
}

void sr_rx_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	struct sr_shm_rq *rq;

	if (likely(!rlock_acquire(ctx, &q->rx_lock, ctx->self.token)))
		return;
	if (!q->qpn || !sr_cq_contains(ctx, sr_at(owner->seg, q->recv_cq), q->qpn, q->rx_seq, 1))
		return;
	rq = sr_at(owner->seg, q->rq);
	if (!rq->shared)
		atomic_fetch_add(&rq->head, 1);
	q->in_hand = 0;
	q->rx_seq++;
}

/* ---- the responder's side ---- */

static struct sr_rwqe *rq_peek(struct sr_run *r, struct sr_shm_qp *d, struct sr_shm_rq *rq, uint32_t *ret_slot)
{
	uint32_t head;

	if (d->in_hand) {
		*ret_slot = d->in_hand - 1;
		return sr_rq_slot(rq, *ret_slot);
	}
	if (rq->shared && rlock_acquire(r->ctx, &rq->lock, r->ctx->self.token)) {
		struct sr_shm_qp *by = sr_at(r->dst->seg, rq->pop_qp);

		head = atomic_load(&rq->head);
		if (rq->pop_qp && rq->pop_seq == head && by->in_hand == rq->avail[head & rq->mask] + 1)
			atomic_store(&rq->head, head + 1);
	}
	head = atomic_load_explicit(&rq->head, memory_order_relaxed);
	if (head == rq->tail_seen && head == (rq->tail_seen = atomic_load(&rq->tail))) {
		if (rq->shared)
			rlock_release(&rq->lock);
		return NULL;
	}
	*ret_slot = sr_rq_number(rq, head);
	if (rq->shared) {
		rq->pop_seq = head;
		rq->pop_qp = (uint64_t)((char *)d - (char *)r->dst->seg);
		d->in_hand = *ret_slot + 1;
		atomic_store(&rq->head, head + 1);
		rlock_release(&rq->lock);
	}
	return sr_rq_slot(rq, *ret_slot);
}

static void srq_limit_check(struct sr_run *r, struct sr_shm_rq *rq)
{
	uint32_t limit = atomic_load(&rq->limit);

	if (limit && atomic_load(&rq->tail) - atomic_load(&rq->head) < limit &&
	    atomic_compare_exchange_strong(&rq->limit, &limit, 0))
		sr_async_push(r->ctx, r->dst->seg, IBV_EVENT_SRQ_LIMIT_REACHED, rq->number);
}

/* Pushes the completion of the receive in @slot, then pops it. */
static void receive_complete(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *d, struct sr_cqe *c,
			     uint32_t slot, int solicited)
{
	struct sr_shm_rq *rq = sr_at(owner->seg, d->rq);

	c->wr_id = sr_rq_slot(rq, slot)->wr_id;
	c->qpn = d->qpn;
	c->number = d->number;
	c->seq = d->rx_seq;
	c->rq_slot = slot + 1;
	sr_cq_push(ctx, owner, sr_at(owner->seg, d->recv_cq), c, solicited);
	if (!rq->shared) {
		uint32_t head = atomic_load_explicit(&rq->head, memory_order_relaxed) + 1;

		atomic_store_explicit(&rq->head, head, memory_order_release);
		__builtin_prefetch(sr_rq_slot(rq, sr_rq_number(rq, head)));
	}
	d->in_hand = 0;
	d->rx_seq++;
}

void sr_rx_fail(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q)
{
	struct sr_shm_rq *rq = sr_at(owner->seg, q->rq);
	int first = atomic_exchange(&q->state, IBV_QPS_ERR) != IBV_QPS_ERR;
	struct sr_cqe c;
	uint32_t head;

	if (rq->shared) {
		if (first)
			sr_async_push(ctx, owner->seg, IBV_EVENT_QP_LAST_WQE_REACHED, q->number);
		return;
	}
	while ((head = atomic_load(&rq->head)) != atomic_load(&rq->tail)) {
		c = (struct sr_cqe){ .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV };
		receive_complete(ctx, owner, q, &c, sr_rq_number(rq, head), 1);
	}
}

/* The responder finds fault with the request: it goes into error too, and says so. */
static enum ibv_wc_status refuse(struct sr_run *r, struct sr_shm_qp *d, enum ibv_wc_status status)
{
	sr_rx_fail(r->ctx, r->dst, d);
	sr_async_push(r->ctx, r->dst->seg,
		      status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, d->number);
	r->other_err = 1;
	return status;
}

/* A fault of the receive itself: its owner sees @local, the sender @remote. */
static enum ibv_wc_status receive_fault(struct sr_run *r, struct sr_shm_qp *d, uint32_t slot,
					enum ibv_wc_status local, enum ibv_wc_status remote)
{
	struct sr_cqe c = { .status = local, .opcode = IBV_WC_RECV };

	receive_complete(r->ctx, r->dst, d, &c, slot, 1);
	sr_rx_fail(r->ctx, r->dst, d);
	r->other_err = 1;
	return remote;
}

/* ---- pieces ---- */

struct pieces {
	struct iovec v[SR_MAX_SGE + 2];
	uint32_t n;
};

static int gather(struct pieces *p, struct sr_seg *seg, uint32_t pd, const struct sr_sge *sge, uint32_t n,
		  uint64_t len, uint32_t access)
{
	uint64_t va;
	uint32_t i;

	p->n = 0;
	for (i = 0; i < n && len; i++) {
		uint64_t part = sge[i].length < len ? sge[i].length : len;

		if (sr_key_check(seg, sge[i].lkey, sge[i].addr, part, access, pd, &va))
			return -EACCES;
		p->v[p->n++] = (struct iovec){ (void *)(uintptr_t)va, part };
		len -= part;
	}
	return 0;
}

/* One stretch of the target, its last bytes apart. */
static void stretch(struct pieces *p, uint64_t va, uint64_t len)
{
	uint64_t tail = len > TAIL_BYTES ? TAIL_BYTES : 0;

	p->v[0] = (struct iovec){ (void *)(uintptr_t)va, len - tail };
	p->v[1] = (struct iovec){ (void *)(uintptr_t)(va + len - tail), tail };
	p->n = 2;
}

static int moved(struct sr_run *r, int err)
{
	(void)r;
	return err == -ESRCH ? STALL_UNREACHABLE : IBV_WC_REM_OP_ERR;
}

/* ---- the operations; rx_lock of @d is held. A status, or STALL_* ---- */

struct op {
	struct sr_wqe *w;
	struct sr_shm_qp *d;
	struct sr_peer *from; /* whose memory the pieces are: the requester, or the executor for inline data */
	struct pieces local;
	uint32_t byte_len;
};

static int remote_check(struct sr_run *r, struct op *o, uint32_t access, uint64_t len, uint64_t *ret_va)
{
	if (!(o->d->access & access) ||
	    sr_key_check(r->dst->seg, o->w->rkey, o->w->remote_addr, len, access, o->d->pd, ret_va))
		return refuse(r, o->d, IBV_WC_REM_ACCESS_ERR);
	return IBV_WC_SUCCESS;
}

static int do_write(struct sr_run *r, struct op *o)
{
	struct pieces there;
	uint64_t va;
	int err = remote_check(r, o, IBV_ACCESS_REMOTE_WRITE, o->w->length, &va);

	if (err)
		return err;
	stretch(&there, va, o->w->length);
	err = sr_copy(r->ctx, r->dst, there.v, o->from, o->local.v, o->w->length);
	return err ? moved(r, err) : IBV_WC_SUCCESS;
}

static int do_read(struct sr_run *r, struct op *o)
{
	struct iovec there;
	uint64_t va;
	int err = remote_check(r, o, IBV_ACCESS_REMOTE_READ, o->w->length, &va);

	if (err)
		return err;
	there = (struct iovec){ (void *)(uintptr_t)va, o->w->length };
	err = sr_copy(r->ctx, r->src, o->local.v, r->dst, &there, o->w->length);
	o->byte_len = (uint32_t)o->w->length;
	return err ? moved(r, err) : IBV_WC_SUCCESS;
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
	int err = remote_check(r, o, IBV_ACCESS_REMOTE_ATOMIC, 8, &va);

	if (err)
		return err;
	if (va % 8)
		return refuse(r, o->d, IBV_WC_REM_INV_REQ_ERR);
	lock = &r->ctx->atomics[va % FM_PAGE_SIZE / 8];
	rlock_acquire(r->ctx, lock, r->ctx->self.token);
	err = sr_copy(r->ctx, &r->ctx->self, &(struct iovec){ &old, 8 }, r->dst,
		      &(struct iovec){ (void *)(uintptr_t)va, 8 }, 8);
	new = atomic_result(o->w, old);
	if (!err && new != old)
		err = sr_copy(r->ctx, r->dst, &(struct iovec){ (void *)(uintptr_t)va, 8 }, &r->ctx->self,
			      &(struct iovec){ &new, 8 }, 8);
	rlock_release(lock);
	if (!err)
		err = sr_copy(r->ctx, r->src, o->local.v, &r->ctx->self, &(struct iovec){ &old, 8 }, 8);
	o->byte_len = 8;
	return err ? moved(r, err) : IBV_WC_SUCCESS;
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

static int place(struct sr_run *r, struct op *o, struct sr_rwqe *w, struct pieces *there, struct sr_cqe *c)
{
	uint64_t len = o->w->length;
	struct iovec ring;

	if (len && len <= SR_CQE_DATA && !r->dst->local) {
		c->inlined = 1;
		ring = (struct iovec){ c->data, len };
		return sr_copy(r->ctx, &r->ctx->self, &ring, o->from, o->local.v, len);
	}
	if (len && len <= SR_BOUNCE_MAX && !r->dst->local) {
		c->bounce = bounce_take(o->d, len);
		c->bounce_end = o->d->bounce_head;
	}
	if (!c->bounce)
		return sr_copy(r->ctx, r->dst, there->v, o->from, o->local.v, len);
	ring.iov_base = (char *)sr_at(r->dst->seg, o->d->bounce) + (uint64_t)(c->bounce - 1) * SR_BOUNCE_UNIT;
	ring.iov_len = len;
	return sr_copy(r->ctx, &r->ctx->self, &ring, o->from, o->local.v, len);
}

static int do_send(struct sr_run *r, struct op *o)
{
	struct sr_shm_rq *rq = sr_at(r->dst->seg, o->d->rq);
	struct sr_cqe c = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .byte_len = (uint32_t)o->w->length };
	struct pieces there;
	struct sr_rwqe *w;
	uint32_t slot;
	int err;

	w = rq_peek(r, o->d, rq, &slot);
	if (!w)
		return STALL_RNR;
	if (o->w->length > w->length)
		return receive_fault(r, o->d, slot, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	if (gather(&there, r->dst->seg, o->d->pd, w->sge, w->nsge, o->w->length, IBV_ACCESS_LOCAL_WRITE))
		return receive_fault(r, o->d, slot, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	err = place(r, o, w, &there, &c);
	if (err)
		return moved(r, err);
	if (o->w->opcode == IBV_WR_SEND_WITH_IMM) {
		c.imm = o->w->imm;
		c.wc_flags = IBV_WC_WITH_IMM;
	}
	receive_complete(r->ctx, r->dst, o->d, &c, slot, o->w->flags & IBV_SEND_SOLICITED);
	if (rq->shared)
		srq_limit_check(r, rq);
	return IBV_WC_SUCCESS;
}

static int do_write_imm(struct sr_run *r, struct op *o)
{
	struct sr_shm_rq *rq = sr_at(r->dst->seg, o->d->rq);
	struct sr_cqe c = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .imm = o->w->imm,
			    .wc_flags = IBV_WC_WITH_IMM, .byte_len = (uint32_t)o->w->length };
	uint32_t slot;
	int err;

	if (!rq_peek(r, o->d, rq, &slot))
		return STALL_RNR;
	err = do_write(r, o);
	if (err)
		return err;
	receive_complete(r->ctx, r->dst, o->d, &c, slot, o->w->flags & IBV_SEND_SOLICITED);
	if (rq->shared)
		srq_limit_check(r, rq);
	return IBV_WC_SUCCESS;
}

static int respond(struct sr_run *r, struct op *o)
{
	switch (o->w->opcode) {
	case IBV_WR_RDMA_WRITE:
		return do_write(r, o);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write_imm(r, o);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return do_send(r, o);
	case IBV_WR_RDMA_READ:
		return do_read(r, o);
	default:
		return do_atomic(r, o);
	}
}

/* ---- the requester's side ---- */

static int is_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int local_prepare(struct sr_run *r, struct op *o)
{
	struct sr_wqe *w = o->w;
	uint32_t access = w->opcode == IBV_WR_RDMA_READ || is_atomic(w->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	o->from = r->src;
	if (w->length > SR_MAX_MSG)
		return IBV_WC_LOC_LEN_ERR;
	if (is_atomic(w->opcode) && w->length != 8)
		return IBV_WC_LOC_LEN_ERR;
	if (w->flags & IBV_SEND_INLINE) {
		o->from = &r->ctx->self;
		o->local.v[0] = (struct iovec){ w->sge, w->inline_len };
		o->local.n = 1;
		return IBV_WC_SUCCESS;
	}
	if (gather(&o->local, r->src->seg, r->q->pd, w->sge, w->nsge, w->length, access))
		return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

/* Is @d ready to answer @q? With rx_lock held. */
static int responds(struct sr_shm_qp *q, struct sr_shm_qp *d)
{
	uint32_t state = atomic_load_explicit(&d->state, memory_order_relaxed), epoch;

	if (d->qpn != q->dest_qpn || d->dest_qpn != q->qpn ||
	    (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD))
		return 0;
	epoch = atomic_load_explicit(&d->epoch, memory_order_relaxed);
	if (!q->peer_epoch)
		q->peer_epoch = epoch;
	return q->peer_epoch == epoch;
}

static int execute(struct sr_run *r, struct sr_wqe *w, uint32_t *ret_len)
{
	struct op o = { .w = w };
	int status = local_prepare(r, &o);

	if (status)
		return status;
	o.d = r->dst ? sr_qp_find(r->dst->seg, r->q->dest_qpn) : NULL;
	if (!o.d || !sr_peer_alive_lately(r->ctx, r->dst))
		return STALL_UNREACHABLE;
	sr_rx_lock(r->ctx, r->dst, o.d);
	status = responds(r->q, o.d) ? respond(r, &o) : STALL_UNREACHABLE;
	if (unlikely(status < 0)) {
		/* Say that we wait, then look once more. */
		atomic_store(&o.d->peer_waits, 1);
		if (status == STALL_RNR) {
			struct sr_shm_rq *rq = sr_at(r->dst->seg, o.d->rq);

			if (rq->shared)
				atomic_store(&rq->waiters, 1);
			status = respond(r, &o);
			r->q->min_rnr_timer = o.d->own_rnr_timer;
		}
	}
	rlock_release(&o.d->rx_lock);
	*ret_len = o.byte_len;
	return status;
}

static uint32_t wc_opcode(uint32_t opcode)
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
	default:
		return IBV_WC_SEND;
	}
}

static void complete(struct sr_run *r, struct sr_wqe *w, uint32_t seq, int status, uint32_t len)
{
	struct sr_shm_qp *q = r->q;
	struct sr_cqe c;

	if (status || (w->flags & IBV_SEND_SIGNALED) || (q->flags & SR_QP_SIG_ALL)) {
		c = (struct sr_cqe){ .wr_id = w->wr_id, .status = (uint32_t)status, .opcode = wc_opcode(w->opcode),
				     .byte_len = len, .qpn = q->qpn, .seq = seq, .number = q->number };
		sr_cq_push(r->ctx, r->src, sr_at(r->src->seg, q->send_cq), &c, 0);
	}
	atomic_store(&q->sq_head, seq + 1);
	atomic_store(&q->stall, SR_STALL_NONE);
}

static uint64_t retry_interval(struct sr_shm_qp *q, int why)
{
	if (why == STALL_RNR)
		return rnr_timer[q->min_rnr_timer % 32] * 10000ull;
	return 4096ull << (q->timeout ? q->timeout % 32 : 14);
}

/* The head cannot go on. 0: it waits; else the status that it fails with. */
static int stalled(struct sr_run *r, int why)
{
	struct sr_shm_qp *q = r->q;
	uint32_t kind = why == STALL_RNR ? SR_STALL_RNR : SR_STALL_UNREACHABLE;
	uint64_t now;

	if (atomic_load(&q->stall) != kind) {
		atomic_store(&q->stall, kind);
		q->tries = 0;
		q->next_try = 0;
		if (kind == SR_STALL_RNR && !q->rnr_retry)
			return IBV_WC_RNR_RETRY_EXC_ERR;
	}
	if (!r->mine) /* the clock is the owner's */
		return 0;
	now = raw_now_ns();
	if (q->next_try && now < q->next_try)
		return 0;
	if (q->next_try)
		q->tries++;
	q->next_try = now + retry_interval(q, why);
	if (kind == SR_STALL_RNR)
		return q->rnr_retry != 7 && q->tries >= q->rnr_retry ? IBV_WC_RNR_RETRY_EXC_ERR : 0;
	if (!q->timeout) /* for ever, but not on the dead */
		return r->dst && !sr_peer_alive(r->ctx, r->dst) ? IBV_WC_RETRY_EXC_ERR : 0;
	return q->tries > q->retry_cnt ? IBV_WC_RETRY_EXC_ERR : 0;
}

static void fail(struct sr_run *r)
{
	sr_rx_lock(r->ctx, r->src, r->q);
	sr_rx_fail(r->ctx, r->src, r->q);
	rlock_release(&r->q->rx_lock);
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
		if (state == IBV_QPS_RTS)
			status = execute(r, w, &len);
		else if (state == IBV_QPS_ERR)
			status = IBV_WC_WR_FLUSH_ERR;
		else
			return;
		if (status < 0) {
			status = stalled(r, status);
			if (!status)
				return;
		}
		complete(r, w, head, status, len);
		if (unlikely(status && status != IBV_WC_WR_FLUSH_ERR))
			fail(r);
	}
}
