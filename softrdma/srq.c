/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues of the basic kind. The queue itself is in rq.c. */
#include <errno.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_srq *srq;
	int err = -EINVAL;

	if (!init->attr.max_wr || init->attr.max_wr > SR_MAX_WR || init->attr.max_sge > SR_MAX_SGE)
		goto err_none;
	init->attr.max_sge += !init->attr.max_sge;
	err = -ENOMEM;
	srq = arena_alloc(&ctx->arena, sizeof(*srq) + SR_SLACK);
	if (!srq)
		goto err_none;
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->srqs, srq, &srq->number);
	if (!err) {
		err = sr_rq_create(ctx, &srq->rq, init->attr.max_wr, init->attr.max_sge);
		if (err)
			sr_ids_give(&ctx->srqs, srq->number);
	}
	lock_release(&ctx->lock);
	if (err)
		goto err_memory;
	srq->rq.shm->shared = 1;
	srq->rq.shm->number = srq->number;
	atomic_store(&srq->rq.shm->limit, init->attr.srq_limit);
	srq->srq = (struct ibv_srq){ .context = pd->context, .srq_context = init->srq_context, .pd = pd,
				     .handle = srq->number };
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	return &srq->srq;
err_memory:
	arena_free(&ctx->arena, srq);
err_none:
	errno = -err;
	return NULL;
}

struct ibv_srq *sr_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *ex)
{
	struct ibv_srq_init_attr init = { .srq_context = ex->srq_context, .attr = ex->attr };
	struct ibv_srq *srq;

	if ((ex->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && ex->srq_type != IBV_SRQT_BASIC) ||
	    !(ex->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = ibv_create_srq(ex->pd, &init);
	if (srq)
		ex->attr = init.attr;
	return srq;
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
	sr_rq_destroy(ctx, &srq->rq);
	sr_ids_give(&ctx->srqs, srq->number);
	lock_release(&ctx->lock);
	atomic_fetch_sub(&sr_pd(ibsrq->pd)->users, 1);
	arena_free(&ctx->arena, srq);
	return 0;
}
