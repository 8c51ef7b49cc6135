/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting sends: the requests are checked and copied into the queue's ring, behind its tail, and the queue is run (progress.c),
 * all under its sq_lock. No state of its own.
 */
#include <errno.h>
#include <string.h>

#include "base/arch/x86_64/cpu.h"
#include "softrdma/device.h"

static int is_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

#define OP(op) (1u << (op))
#define SENDS (OP(IBV_WR_SEND) | OP(IBV_WR_SEND_WITH_IMM))
#define WRITES (OP(IBV_WR_RDMA_WRITE) | OP(IBV_WR_RDMA_WRITE_WITH_IMM))
#define WINDOWS (OP(IBV_WR_LOCAL_INV) | OP(IBV_WR_BIND_MW))
#define READS (OP(IBV_WR_RDMA_READ) | OP(IBV_WR_ATOMIC_CMP_AND_SWP) | OP(IBV_WR_ATOMIC_FETCH_AND_ADD))

/* What each transport service has (IBA 9.3.1, table 37 of 9.4). */
uint32_t sr_qp_ops(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return SENDS;
	case IBV_QPT_UC:
		return SENDS | WRITES | WINDOWS;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return SENDS | WRITES | READS | WINDOWS | OP(IBV_WR_SEND_WITH_INV);
	default:
		return 0;
	}
}

static int wr_check(struct sr_qp *qp, const struct ibv_send_wr *wr)
{
	struct sr_shm_qp *q = qp->shm;
	uint64_t len = 0;
	int i;

	if (unlikely(wr->opcode > 31 || !(qp->ops & OP(wr->opcode))))
		return wr->opcode > IBV_WR_SEND_WITH_INV ? EOPNOTSUPP : EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (OP(wr->opcode) & READS)
			return EINVAL;
		for (i = 0; i < wr->num_sge; i++)
			len += wr->sg_list[i].length;
		if (len > qp->cap.max_inline_data)
			return EINVAL;
	}
	if (unlikely(q->type == IBV_QPT_UD && !wr->wr.ud.ah))
		return EINVAL;
	if (atomic_load_explicit(&q->sq_tail, memory_order_relaxed) -
	    atomic_load_explicit(&q->sq_freed, memory_order_acquire) >= q->sq_cap)
		return ENOMEM;
	return 0;
}

static void wqe_data(struct sr_wqe *w, const struct ibv_send_wr *wr)
{
	char *to = (char *)w->sge;
	int i;

	w->length = 0;
	w->nsge = (uint32_t)wr->num_sge;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(to + w->length, (void *)(uintptr_t)s->addr, s->length);
		else
			w->sge[i] = (struct sr_sge){ s->addr, s->length, s->lkey };
		w->length += s->length;
	}
}

/* A datagram's address. A key whose highest bit is set stands for the queue pair's own (IBA 10.2.5). */
void sr_wqe_address(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, struct ibv_ah *ibah, uint32_t qpn,
		    uint32_t qkey)
{
	struct sr_ah *ah = sr_ah(ibah);

	if (ah->av.multicast)
		sr_group_find(ctx, ah->av.dgid, &ah->av.group);
	*sr_wqe_av(qp->shm, w) = ah->av;
	w->target = qpn;
	w->rkey = qkey >> 31 ? qp->shm->qkey : qkey;
}

/* Where it goes, by its operation. */
static void wqe_target(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, const struct ibv_send_wr *wr)
{
	if (is_atomic(wr->opcode)) {
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else if (unlikely(qp->shm->type == IBV_QPT_UD)) {
		sr_wqe_address(ctx, qp, w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	} else if (unlikely(wr->opcode == IBV_WR_BIND_MW)) {
		sr_wqe_bind(w, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	if (unlikely(qp->shm->type == IBV_QPT_XRC_SEND))
		w->target = wr->qp_type.xrc.remote_srqn;
}

static int post_one(struct sr_context *ctx, struct sr_qp *qp, const struct ibv_send_wr *wr, enum ibv_mw_type window)
{
	uint32_t tail = sr_sq_begin(qp->shm);
	struct sr_wqe *w = sr_sq_slot(ctx->seg, qp->shm, tail);
	int err = wr_check(qp, wr);

	if (!err && unlikely(wr->opcode == IBV_WR_BIND_MW))
		err = sr_bind_check(qp, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, window);
	if (err)
		return err;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->imm = wr->imm_data;
	wqe_target(ctx, qp, w, wr);
	wqe_data(w, wr);
	atomic_store_explicit(&qp->shm->sq_tail, tail + 1, memory_order_release);
	return 0;
}

int sr_qp_sends(const struct sr_qp *qp)
{
	uint32_t state = atomic_load_explicit(&qp->shm->state, memory_order_acquire);

	return state == IBV_QPS_RTS || state == IBV_QPS_ERR || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

/*
 * What a message needs of the other end was written there last: its completion queue's line, and the next receive. They
 * travel while the request is put together, not one after the other when each is needed.
 */
static void fetch_ahead(struct sr_qp *qp)
{
	struct sr_peer *p = atomic_load_explicit(&qp->peer, memory_order_relaxed);
	struct sr_shm_qp *d = p && !p->local ? sr_qp_find(p->seg, qp->shm->dest_qpn) : NULL;
	struct sr_shm_rq *rq;

	if (!d || !d->rq || !d->recv_cq)
		return;
	arch_prefetch_write(&((struct sr_shm_cq *)sr_at(p->seg, d->recv_cq))->lock);
	rq = sr_at(p->seg, d->rq);
	__builtin_prefetch(&rq->tail);
	if (!rq->shared)
		__builtin_prefetch(sr_rq_slot(rq, sr_rq_number(rq, atomic_load_explicit(&rq->head, memory_order_relaxed))));
}

static int post_list(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, enum ibv_mw_type window)
{
	struct sr_qp *qp = sr_qp(ibqp);
	struct sr_context *ctx = sr_context(ibqp->context);
	int err = 0;

	if (unlikely(!sr_qp_sends(qp))) {
		*bad = wr;
		return EINVAL;
	}
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	if (wr && OP(wr->opcode & 31) & SENDS)
		fetch_ahead(qp);
	for (; wr; wr = wr->next) {
		err = post_one(ctx, qp, wr, window);
		if (unlikely(err)) {
			*bad = wr;
			break;
		}
	}
	sr_qp_run_locked(ctx, qp);
	return err;
}

int sr_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return post_list(qp, wr, bad, IBV_MW_TYPE_2);
}

int sr_post_bind(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return post_list(qp, wr, &bad, IBV_MW_TYPE_1);
}
