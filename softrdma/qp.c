/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: making, asking, ending; their states are in qp_state.c.
 *
 * A QP's memory lies in the segment and is never used for anything but QPs: an executor may hold its address a
 * moment after its end, takes its lock, and finds that the number is not the one it meant.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

#define QP_SIZE ALIGN_UP(sizeof(struct sr_shm_qp), (size_t)64)
#define BLOCK_SELF (uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
#define BOUNCE_SIZE ((size_t)SR_BOUNCE_UNITS * SR_BOUNCE_UNIT)

/* ---- creation ---- */

static int init_check(const struct ibv_qp_init_attr_ex *init)
{
	const struct ibv_qp_cap *cap = &init->cap;
	int target = init->qp_type == IBV_QPT_XRC_RECV, initiator = init->qp_type == IBV_QPT_XRC_SEND;

	if (!sr_qp_ops(init->qp_type) && !target)
		return EOPNOTSUPP;
	if (target ? !(init->comp_mask & IBV_QP_INIT_ATTR_XRCD) : !(init->comp_mask & IBV_QP_INIT_ATTR_PD))
		return EINVAL;
	if ((!init->send_cq && !target) || (!init->recv_cq && !target && !initiator))
		return EINVAL;
	if (init->srq && (initiator || target))
		return EINVAL;
	if (cap->max_send_wr > SR_MAX_WR || cap->max_recv_wr > SR_MAX_WR || cap->max_send_sge > SR_MAX_SGE ||
	    cap->max_recv_sge > SR_MAX_SGE || cap->max_inline_data > SR_MAX_INLINE)
		return EINVAL;
	if ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	    (init->create_flags & ~(init->qp_type == IBV_QPT_UD ? BLOCK_SELF : 0)))
		return EOPNOTSUPP;
	return init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
		       ? sr_send_ops_check(init->qp_type, init->send_ops_flags)
		       : 0;
}

/* What a queue pair has not, it has of the smallest size, so that nobody need ask. */
static void cap_round(struct ibv_qp_init_attr_ex *init)
{
	if (init->qp_type == IBV_QPT_XRC_RECV)
		init->cap = (struct ibv_qp_cap){ 0 };
	if (init->srq || init->qp_type == IBV_QPT_XRC_SEND)
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
	if (init->qp_type == IBV_QPT_XRC_RECV)
		return;
	init->cap.max_send_wr += !init->cap.max_send_wr;
	init->cap.max_send_sge += !init->cap.max_send_sge;
	if (!init->srq && init->qp_type != IBV_QPT_XRC_SEND)
		init->cap.max_recv_sge += !init->cap.max_recv_sge;
}

static size_t sq_size(struct sr_shm_qp *q)
{
	return (size_t)(q->sq_mask + 1) * q->sq_stride;
}

static uint64_t offset(struct sr_context *ctx, const void *p)
{
	return (uint64_t)((const char *)p - (const char *)ctx->seg);
}

static struct sr_shm_qp *qp_memory_take(struct sr_context *ctx)
{
	struct sr_shm_qp *q = sr_at(ctx->seg, ctx->qp_free);

	if (!ctx->qp_free)
		return sr_shm_alloc(ctx, QP_SIZE);
	ctx->qp_free = q->sq;
	return q;
}

static void qp_memory_give(struct sr_context *ctx, struct sr_shm_qp *q)
{
	q->sq = ctx->qp_free;
	ctx->qp_free = offset(ctx, q);
}

static int queues_create(struct sr_context *ctx, struct sr_qp *qp, const struct ibv_qp_cap *cap)
{
	struct sr_shm_qp *q = qp->shm;
	uint32_t slots = 1, data = (uint32_t)(cap->max_send_sge * sizeof(struct sr_sge));
	void *sq;

	if (data < cap->max_inline_data)
		data = cap->max_inline_data;
	while (slots < cap->max_send_wr)
		slots <<= 1;
	q->sq_cap = cap->max_send_wr;
	q->sq_mask = slots - 1;
	q->sq_av = (uint32_t)ALIGN_UP(sizeof(struct sr_wqe) + data, (size_t)8);
	q->sq_stride = (uint32_t)ALIGN_UP(q->sq_av + (q->type == IBV_QPT_UD ? sizeof(struct sr_av) : 0), (size_t)64);
	sq = sr_shm_alloc(ctx, sq_size(q));
	if (!sq)
		return -ENOMEM;
	q->sq = offset(ctx, sq);
	return 0;
}

/* Many queue pairs are made and never used: the ring comes when this one may be sent to. There is another way without it. */
void sr_qp_bounce(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_shm_qp *q = qp->shm;
	void *bounce;

	lock_acquire(&ctx->lock);
	bounce = q->bounce ? NULL : sr_shm_alloc(ctx, BOUNCE_SIZE);
	if (bounce)
		q->bounce = offset(ctx, bounce);
	lock_release(&ctx->lock);
}

static void queues_destroy(struct sr_context *ctx, struct sr_qp *qp)
{
	sr_shm_free(ctx, sr_at(ctx->seg, qp->shm->sq), sq_size(qp->shm));
	if (qp->shm->bounce)
		sr_shm_free(ctx, sr_at(ctx->seg, qp->shm->bounce), BOUNCE_SIZE);
	qp->shm->bounce = 0;
}

/* ctx->lock held. */
static int parts_create(struct sr_context *ctx, struct sr_qp *qp, struct ibv_qp_init_attr_ex *init)
{
	int err = sr_ids_take(&ctx->qps, qp, &qp->number);

	if (err)
		return err;
	err = -ENOMEM;
	qp->shm = qp_memory_take(ctx);
	if (!qp->shm)
		goto err_id;
	qp->shm->type = init->qp_type;
	err = queues_create(ctx, qp, &init->cap);
	if (err)
		goto err_memory;
	qp->rq = init->srq ? &sr_srq(init->srq)->rq : &qp->own_rq;
	if (!init->srq)
		err = sr_rq_create(ctx, qp->rq, init->cap.max_recv_wr, init->cap.max_recv_sge);
	if (!err)
		return 0;
	queues_destroy(ctx, qp);
err_memory:
	qp_memory_give(ctx, qp->shm);
err_id:
	sr_ids_give(&ctx->qps, qp->number);
	return err;
}

static void users_add(struct ibv_qp *qp, uint32_t n)
{
	if (qp->pd)
		atomic_fetch_add(&sr_pd(qp->pd)->users, n);
	if (qp->send_cq)
		atomic_fetch_add(&sr_cq(qp->send_cq)->users, n);
	if (qp->recv_cq)
		atomic_fetch_add(&sr_cq(qp->recv_cq)->users, n);
	if (sr_qp(qp)->xrcd)
		atomic_fetch_add(&sr_qp(qp)->xrcd->users, n);
	if (qp->srq)
		atomic_fetch_add(&sr_srq(qp->srq)->users, n);
}

void sr_qp_empty(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_shm_qp *q = qp->shm;
	uint32_t seq = atomic_load(&q->sq_tail);

	atomic_store(&q->state, IBV_QPS_RESET);
	q->dest_qpn = 0;
	q->access = q->qkey = q->draining = 0;
	q->timeout = q->retry_cnt = q->rnr_retry = q->own_rnr_timer = q->min_rnr_timer = 0;
	atomic_store(&q->sq_head, seq);
	atomic_store(&q->sq_freed, seq);
	atomic_store(&q->stall, SR_STALL_NONE);
	q->established = q->peer_epoch = q->bounce_head = q->bounce_seen = 0;
	atomic_fetch_add(&q->rx_seq, 1);
	q->last_told = 0;
	atomic_store(&qp->failure, SR_FAILURE_NONE);
	atomic_store(&q->bounce_tail, 0);
	if (!qp->rq->shm->shared)
		sr_rq_reset(qp->rq);
}

void sr_qp_purge(struct sr_context *ctx, struct sr_qp *qp)
{
	sr_in_hand_flush(ctx, &ctx->self, qp->shm);
	if (qp->qp.recv_cq)
		sr_cq_purge(ctx, sr_cq(qp->qp.recv_cq), qp->number, 0, qp->rq);
	if (qp->qp.send_cq && qp->qp.send_cq != qp->qp.recv_cq)
		sr_cq_purge(ctx, sr_cq(qp->qp.send_cq), qp->number, 0, qp->rq);
}

static void shm_fill(struct sr_context *ctx, struct sr_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	struct sr_shm_qp *q = qp->shm;

	q->flags = init->sq_sig_all ? SR_QP_SIG_ALL : 0;
	if ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && (init->create_flags & BLOCK_SELF))
		q->flags |= SR_QP_BLOCK_SELF;
	q->pd = qp->qp.pd ? sr_pd(qp->qp.pd)->number : 0;
	q->xrcd = qp->xrcd ? qp->xrcd->id : 0;
	q->number = qp->number;
	q->send_cq = init->send_cq ? offset(ctx, sr_cq(init->send_cq)->shm) : 0;
	q->recv_cq = init->recv_cq ? offset(ctx, sr_cq(init->recv_cq)->shm) : 0;
	q->rq = offset(ctx, qp->rq->shm);
	atomic_store(&q->peer_waits, 0);
	atomic_store(&q->sq_tail, (uint32_t)sr_random(ctx));
	q->rx_seq = (uint32_t)sr_random(ctx);
	q->in_hand = 0;
	sr_qp_empty(ctx, qp);
	q->qpn = ctx->seg->index << SR_QP_BITS | qp->number;
	atomic_store(&ctx->seg->qp_off[qp->number], offset(ctx, q));
}

static struct sr_qp *qp_new(struct sr_context *ctx, struct ibv_qp_init_attr_ex *init)
{
	struct sr_qp *qp = arena_alloc(&ctx->arena, sizeof(*qp));
	int err = -ENOMEM;

	if (qp) {
		lock_acquire(&ctx->lock);
		err = parts_create(ctx, qp, init);
		lock_release(&ctx->lock);
	}
	if (!err)
		return qp;
	arena_free(&ctx->arena, qp);
	errno = -err;
	return NULL;
}

struct ibv_qp *sr_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct sr_context *ctx = sr_context(context);
	int err = init->comp_mask & ~known ? EOPNOTSUPP : init_check(init);
	struct sr_qp *qp;

	if (err) {
		errno = err;
		return NULL;
	}
	if (init->qp_type == IBV_QPT_XRC_RECV)
		init->send_cq = init->recv_cq = NULL;
	if (init->qp_type == IBV_QPT_XRC_SEND)
		init->recv_cq = NULL;
	cap_round(init);
	qp = qp_new(ctx, init);
	if (!qp)
		return NULL;
	list_init(&qp->stalled_link);
	qp->ops = sr_qp_ops(init->qp_type);
	qp->cap = init->cap;
	qp->xrcd = init->qp_type == IBV_QPT_XRC_RECV ? sr_xrcd(init->xrcd) : NULL;
	qp->qp = (struct ibv_qp){ .context = context, .qp_context = init->qp_context,
				  .pd = init->qp_type == IBV_QPT_XRC_RECV ? NULL : init->pd,
				  .send_cq = init->send_cq, .recv_cq = init->recv_cq, .srq = init->srq,
				  .handle = qp->number, .state = IBV_QPS_RESET, .qp_type = init->qp_type };
	if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		sr_send_ops_fill(qp);
	lock_acquire(&ctx->lock);
	shm_fill(ctx, qp, init);
	lock_release(&ctx->lock);
	qp->qp.qp_num = qp->shm->qpn;
	users_add(&qp->qp, 1);
	return &qp->qp;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = { .qp_context = init->qp_context, .send_cq = init->send_cq,
					  .recv_cq = init->recv_cq, .srq = init->srq, .cap = init->cap,
					  .qp_type = init->qp_type, .sq_sig_all = init->sq_sig_all,
					  .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_qp *qp = sr_create_qp_ex(pd->context, &ex);

	if (qp)
		init->cap = ex.cap;
	return qp;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct sr_qp *qp = sr_qp(ibqp);

	if (unlikely(qp->opened)) {
		*attr = (struct ibv_qp_attr){ .qp_state = sr_opened_state(qp) };
		attr->cur_qp_state = ibqp->state = attr->qp_state;
		*init = (struct ibv_qp_init_attr){ .qp_context = ibqp->qp_context, .qp_type = ibqp->qp_type };
		return 0;
	}
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibqp->state = atomic_load(&qp->shm->state);
	attr->cap = qp->cap;
	attr->sq_draining = qp->shm->draining != 0;
	*init = (struct ibv_qp_init_attr){ .qp_context = ibqp->qp_context, .send_cq = ibqp->send_cq,
					   .recv_cq = ibqp->recv_cq, .srq = ibqp->srq, .cap = qp->cap,
					   .qp_type = ibqp->qp_type,
					   .sq_sig_all = (qp->shm->flags & SR_QP_SIG_ALL) != 0 };
	return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct sr_qp *qp = sr_qp(ibqp);
	struct sr_context *ctx = sr_context(ibqp->context);
	uint32_t acked;
	int attached;

	if (unlikely(qp->opened)) {
		sr_qp_close(qp);
		return 0;
	}
	lock_acquire(&ctx->lock);
	attached = sr_qp_is_member(ctx, qp->number);
	lock_release(&ctx->lock);
	if (attached)
		return EBUSY;
	if (unlikely(ctx->net))
		sr_net_detach(ctx, qp);
	sr_stalled_del(ctx, qp);
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	sr_rx_lock(ctx, &ctx->self, qp->shm);
	sr_qp_purge(ctx, qp);
	atomic_store(&ctx->seg->qp_off[qp->number], 0);
	qp->shm->qpn = 0;
	sr_qp_empty(ctx, qp);
	rlock_release(&qp->shm->rx_lock);
	rlock_release(&qp->shm->sq_lock);
	while ((acked = atomic_load(&qp->async_acked)) != atomic_load(&qp->async_taken))
		raw_futex((uint32_t *)&qp->async_acked, FUTEX_WAIT, acked, NULL, 0);
	sr_peer_put(ctx, atomic_exchange(&qp->peer, NULL));
	users_add(ibqp, (uint32_t)-1);
	lock_acquire(&ctx->lock);
	queues_destroy(ctx, qp);
	if (qp->rq == &qp->own_rq)
		sr_rq_destroy(ctx, qp->rq);
	qp_memory_give(ctx, qp->shm);
	sr_ids_give(&ctx->qps, qp->number);
	lock_release(&ctx->lock);
	arena_free(&ctx->arena, qp);
	return 0;
}
