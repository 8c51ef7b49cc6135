/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's side of the engine: what each operation does at the queue pair that it arrives at, with its keys and its
 * receives (receive.c). Everything here runs in the executor, under the rx_lock of that queue pair.
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

/* The operations give a status, or STALL_*. */

/* One stretch of the target, its last bytes apart. */
static void stretch(struct pieces *p, uint64_t va, uint64_t len)
{
	uint64_t tail = len > TAIL_BYTES ? TAIL_BYTES : 0;

	p->v[0] = (struct iovec){ (void *)(uintptr_t)va, len - tail };
	p->v[1] = (struct iovec){ (void *)(uintptr_t)(va + len - tail), tail };
	p->n = 2;
}

/* What a move ends in that did not come to pass. Whose memory is not there is known where the other side's is. */
static int not_moved(struct sr_run *r, struct op *o, int err)
{
	if (err == -ESRCH)
		return STALL_UNREACHABLE;
	return o->from->known ? sr_refuse(r, o, IBV_WC_REM_OP_ERR) : IBV_WC_REM_OP_ERR;
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
	if (o->data != OP_TO_MOVE)
		return o->data == OP_PLACED ? IBV_WC_SUCCESS : sr_refuse(r, o, IBV_WC_REM_ACCESS_ERR);
	stretch(&there, va, o->w->length);
	err = sr_copy(r->ctx, o->to, there.v, o->from, o->local.v, o->w->length);
	return err ? not_moved(r, o, err) : IBV_WC_SUCCESS;
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
	return err ? not_moved(r, o, err) : IBV_WC_SUCCESS;
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
	return err ? not_moved(r, o, err) : IBV_WC_SUCCESS;
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
		return o->data == OP_PLACED ? 0 : sr_copy(r->ctx, o->to, there->v, o->from, o->local.v, len);
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
	if (unlikely(o->data == OP_UNPLACED) ||
	    gather(&there, o->to->seg, o->pd, w->sge, w->nsge, o->w->length, IBV_ACCESS_LOCAL_WRITE))
		return sr_receive_fault(r, o, slot, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	err = sr_place(r, o, o->w->length, &there, &c);
	if (unlikely(err == -EFAULT && o->from->known))
		return sr_receive_fault(r, o, slot, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	if (err)
		return not_moved(r, o, err);
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
