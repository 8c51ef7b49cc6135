/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receive queues, a QP's own and shared ones. A slot goes round:
 *
 *   free (owner's stack) -> filled, its number in avail[] -> popped by an executor -> named by a completion
 *   -> free at its poll
 *
 * so a queue holds at most its capacity of requests that are posted or not yet polled. A QP's own slots go round in
 * turn, as its completions do: there the stack only counts. Of a shared queue they come back in any order. Posting is
 * under the owner's private lock; popping under the QP's rx_lock, for a shared queue under its own robust lock too.
 */
#include <errno.h>
#include <string.h>

#include "base/arch/x86_64/cpu.h"
#include "softrdma/device.h"

static size_t rq_head_size(uint32_t mask)
{
	return ALIGN_UP(sizeof(struct sr_shm_rq) + (mask + 1) * sizeof(uint32_t), 64u);
}

static size_t rq_size(uint32_t mask, uint32_t stride)
{
	return rq_head_size(mask) + (size_t)(mask + 1) * stride;
}

int sr_rq_create(struct sr_context *ctx, struct sr_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	size_t slot = sizeof(struct sr_rwqe) + max_sge * sizeof(struct sr_sge);
	uint32_t slots = 1, stride = (uint32_t)ALIGN_UP(slot, (size_t)64);

	while (slots < max_wr)
		slots <<= 1;
	rq->max_sge = max_sge;
	rq->free = arena_alloc(&ctx->arena, (max_wr ? max_wr : 1) * sizeof(*rq->free));
	if (!rq->free)
		return -ENOMEM;
	rq->shm = sr_shm_alloc(ctx, rq_size(slots - 1, stride));
	if (!rq->shm) {
		arena_free(&ctx->arena, rq->free);
		return -ENOMEM;
	}
	rq->shm->cap = max_wr;
	atomic_store(&rq->shm->tail, (uint32_t)sr_random(ctx));
	atomic_store(&rq->shm->polled, atomic_load(&rq->shm->tail));
	rq->shm->mask = slots - 1;
	rq->shm->stride = stride;
	rq->shm->slots_off = (uint32_t)rq_head_size(slots - 1);
	sr_rq_reset(rq);
	return 0;
}

void sr_rq_destroy(struct sr_context *ctx, struct sr_rq *rq)
{
	sr_shm_free(ctx, rq->shm, rq_size(rq->shm->mask, rq->shm->stride));
	arena_free(&ctx->arena, rq->free);
}

/* Empties it. Nobody else may be at it. Positions go on, so that no old completion can be taken for a new one's. */
void sr_rq_reset(struct sr_rq *rq)
{
	uint32_t i;

	for (i = 0; i < rq->shm->cap; i++)
		rq->free[i] = rq->shm->cap - 1 - i;
	rq->nr_free = rq->shm->cap;
	rq->shm->tail_seen = atomic_load(&rq->shm->tail);
	atomic_store(&rq->shm->head, rq->shm->tail_seen);
}

void sr_rq_give(struct sr_rq *rq, const struct sr_cqe *c)
{
	uint32_t slot = c->rq_slot - 1;

	arch_prefetch_write(sr_rq_slot(rq->shm, slot)); /* it is filled anew next */
	/* For who looks after a death whether the receive is used. */
	if (rq->shm->shared)
		atomic_fetch_add(&sr_rq_slot(rq->shm, slot)->round, 1);
	else
		atomic_store_explicit(&rq->shm->polled, c->seq + 1, memory_order_release);
	sr_thread_lock(&rq->lock);
	rq->free[rq->nr_free++] = slot;
	sr_thread_unlock(&rq->lock);
}

static int post_one(struct sr_rq *rq, const struct ibv_recv_wr *wr)
{
	uint32_t slot, i, tail = atomic_load_explicit(&rq->shm->tail, memory_order_relaxed);
	struct sr_rwqe *w;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (!rq->nr_free)
		return ENOMEM;
	slot = rq->free[--rq->nr_free];
	if (!rq->shm->shared)
		slot = tail & rq->shm->mask;
	w = sr_rq_slot(rq->shm, slot);
	w->wr_id = wr->wr_id;
	w->nsge = (uint32_t)wr->num_sge;
	w->length = 0;
	for (i = 0; i < w->nsge; i++) {
		w->sge[i] = (struct sr_sge){ wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey };
		w->length += w->sge[i].length;
	}
	if (rq->shm->shared)
		rq->shm->avail[tail & rq->shm->mask] = slot;
	atomic_store(&rq->shm->tail, tail + 1);
	return 0;
}

static int post_list(struct sr_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	sr_thread_lock(&rq->lock);
	for (; wr && !err; wr = wr->next) {
		err = post_one(rq, wr);
		if (err)
			*bad = wr;
	}
	sr_thread_unlock(&rq->lock);
	return err;
}

int sr_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sr_qp *qp = sr_qp(ibqp);
	struct sr_context *ctx = sr_context(ibqp->context);
	int err;

	if (unlikely(ibqp->srq || !ibqp->recv_cq || atomic_load_explicit(&qp->shm->state, memory_order_relaxed) == IBV_QPS_RESET)) {
		*bad = wr;
		return EINVAL;
	}
	err = post_list(qp->rq, wr, bad);
	if (unlikely(atomic_load(&qp->shm->state) == IBV_QPS_ERR)) {
		sr_rx_lock(ctx, &ctx->self, qp->shm);
		sr_rx_fail(ctx, &ctx->self, qp->shm);
		rlock_release(&qp->shm->rx_lock);
	} else if (unlikely(atomic_load(&qp->shm->peer_waits))) {
		sr_kick(ctx, qp);
	}
	return err;
}

int sr_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sr_srq *srq = sr_srq(ibsrq);
	struct sr_context *ctx = sr_context(ibsrq->context);
	int err = post_list(&srq->rq, wr, bad);
	uint32_t i;

	if (likely(!atomic_load(&srq->rq.shm->waiters)))
		return err;
	atomic_store(&srq->rq.shm->waiters, 0);
	for (i = 0; i < ctx->qps.fresh; i++) {
		struct sr_qp *qp = sr_ids_at(&ctx->qps, i);

		if (qp && (qp->rq == &srq->rq || qp->shm->type == IBV_QPT_XRC_RECV) &&
		    atomic_load(&qp->shm->peer_waits))
			sr_kick(ctx, qp);
	}
	return err;
}
