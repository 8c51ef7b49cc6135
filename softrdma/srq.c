/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues, of the basic kind and of extended connections. The queue itself is in rq.c. */
#include <errno.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

/* What makes it one of extended connections: @ex has its domain and its completion queue. */
static void extend(struct sr_context *ctx, struct sr_srq *srq, const struct ibv_srq_init_attr_ex *ex)
{
	struct sr_shm_rq *shm = srq->rq.shm;

	srq->xrcd = sr_xrcd(ex->xrcd);
	srq->cq = sr_cq(ex->cq);
	atomic_fetch_add(&srq->xrcd->users, 1);
	atomic_fetch_add(&srq->cq->users, 1);
	shm->pd = sr_pd(srq->srq.pd)->number;
	shm->cq = (uint64_t)((char *)srq->cq->shm - (char *)ctx->seg);
	shm->xrcd = srq->xrcd->id;
	atomic_store(&ctx->seg->srq_off[srq->number], (uint64_t)((char *)shm - (char *)ctx->seg));
}

static int attr_check(struct ibv_srq_attr *attr)
{
	if (!attr->max_wr || attr->max_wr > SR_MAX_WR || attr->max_sge > SR_MAX_SGE)
		return -EINVAL;
	attr->max_sge += !attr->max_sge;
	return 0;
}

/* @ex: of the extended kind, else NULL. */
static struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_attr *attr, void *context,
				  const struct ibv_srq_init_attr_ex *ex)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_srq *srq = NULL;
	int err = attr_check(attr);

	if (err)
		goto err_none;
	err = -ENOMEM;
	srq = arena_alloc(&ctx->arena, sizeof(*srq) + SR_SLACK);
	if (!srq)
		goto err_none;
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->srqs, srq, &srq->number);
	if (!err) {
		err = sr_rq_create(ctx, &srq->rq, attr->max_wr, attr->max_sge);
		if (err)
			sr_ids_give(&ctx->srqs, srq->number);
	}
	lock_release(&ctx->lock);
	if (err)
		goto err_none;
	srq->rq.shm->shared = 1;
	srq->rq.shm->number = srq->number;
	atomic_store(&srq->rq.shm->limit, attr->srq_limit);
	srq->srq = (struct ibv_srq){ .context = pd->context, .srq_context = context, .pd = pd,
				     .handle = srq->number };
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	if (ex)
		extend(ctx, srq, ex);
	return &srq->srq;
err_none:
	arena_free(&ctx->arena, srq);
	errno = -err;
	return NULL;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return srq_create(pd, &init->attr, init->srq_context, NULL);
}

struct ibv_srq *sr_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *ex)
{
	const uint32_t parts = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
	enum ibv_srq_type type = ex->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? ex->srq_type : IBV_SRQT_BASIC;

	if ((type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) || (ex->comp_mask & ~(IBV_SRQ_INIT_ATTR_TYPE | parts))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(ex->comp_mask & IBV_SRQ_INIT_ATTR_PD) || (type == IBV_SRQT_XRC && (ex->comp_mask & parts) != parts)) {
		errno = EINVAL;
		return NULL;
	}
	return srq_create(ex->pd, &ex->attr, ex->srq_context, type == IBV_SRQT_XRC ? ex : NULL);
}

int sr_get_srq_num(struct ibv_srq *ibsrq, uint32_t *ret_number)
{
	struct sr_srq *srq = sr_srq(ibsrq);

	if (!srq->xrcd)
		return EINVAL;
	*ret_number = sr_context(ibsrq->context)->seg->index << SR_QP_BITS | srq->number;
	return 0;
}

EXPORT int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct sr_srq *srq = sr_srq(ibsrq);

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > srq->rq.shm->cap)
		return EINVAL;
	if (mask & IBV_SRQ_LIMIT)
		atomic_store(&srq->rq.shm->limit, attr->srq_limit);
	return 0;
}

EXPORT int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct sr_srq *srq = sr_srq(ibsrq);

	*attr = (struct ibv_srq_attr){ .max_wr = srq->rq.shm->cap, .max_sge = srq->rq.max_sge,
				       .srq_limit = atomic_load(&srq->rq.shm->limit) };
	return 0;
}

/* Nobody finds it any more, and whoever has found it through a queue pair of this context is done. ctx->lock held. */
static void withdraw(struct sr_context *ctx, struct sr_srq *srq)
{
	atomic_store(&ctx->seg->srq_off[srq->number], 0);
	sr_keys_settle(ctx);
	sr_cq_purge(ctx, srq->cq, srq->number, SR_CQE_SRQ, &srq->rq);
	atomic_fetch_sub(&srq->cq->users, 1);
	atomic_fetch_sub(&srq->xrcd->users, 1);
}

EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct sr_srq *srq = sr_srq(ibsrq);
	struct sr_context *ctx = sr_context(ibsrq->context);
	uint32_t acked;

	if (atomic_load(&srq->users))
		return EBUSY;
	while ((acked = atomic_load(&srq->async_acked)) != atomic_load(&srq->async_taken))
		raw_futex((uint32_t *)&srq->async_acked, FUTEX_WAIT, acked, NULL, 0);
	lock_acquire(&ctx->lock);
	if (srq->xrcd)
		withdraw(ctx, srq);
	sr_rq_destroy(ctx, &srq->rq);
	sr_ids_give(&ctx->srqs, srq->number);
	lock_release(&ctx->lock);
	atomic_fetch_sub(&sr_pd(ibsrq->pd)->users, 1);
	arena_free(&ctx->arena, srq);
	return 0;
}
