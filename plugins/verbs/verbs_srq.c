/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues. Owns for each a slot for every receive that is posted and has not completed, which keeps the program's wr_id; the device is
 * given the slot's number and the queue's handle. Not saved yet (verbs_plain.c).
 *
 * The table of queues is changed under verbs_lock and read without: an entry is set before its handle is known to the device. A handle's generation
 * tells completions of a queue that is gone.
 */
#include "plugins/verbs/verbs_internal.h"

#define SRQS 65536u
#define GENERATIONS 8192u

static struct shadow_srq *srqs[SRQS];
static uint32_t next_index, next_generation;

static int handle_draw(struct shadow_srq *srq)
{
	uint32_t tries = 0;

	lock_acquire(&verbs_lock);
	while (tries < SRQS && srqs[next_index]) {
		next_index = (next_index + 1) % SRQS;
		tries++;
	}
	if (tries < SRQS) {
		srq->handle = VERBS_HANDLE_RECEIVE | VERBS_HANDLE_SRQ | next_generation << 16 | next_index;
		next_generation = (next_generation + 1) % GENERATIONS;
		srqs[next_index] = srq;
	}
	lock_release(&verbs_lock);
	return tries < SRQS ? 0 : -ENOMEM;
}

static int slots_make(struct shadow_srq *srq, uint32_t n)
{
	srq->slot = fermata_alloc(n * sizeof(*srq->slot));
	if (!srq->slot)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		srq->slot[i].next = i + 1 < n ? i + 2 : 0;
	srq->free = 1;
	srq->slots = n;
	return 0;
}

static void srq_free(struct shadow_srq *srq)
{
	if (!srq)
		return;
	if (srq->real)
		verbs_backend.ibv_destroy_srq(srq->real);
	fermata_free(srq->slot);
	fermata_free(srq);
}

/* One that the plain call can make is made by it, for a device may have no other. */
static struct ibv_srq *real_create(struct ibv_context *real, struct ibv_srq_init_attr_ex *x)
{
	struct ibv_srq *(*create)(struct ibv_context *, struct ibv_srq_init_attr_ex *) = VERBS_REAL_OP(real, create_srq_ex);
	struct ibv_srq_init_attr init = { .srq_context = x->srq_context, .attr = x->attr };
	struct ibv_srq *srq;

	if (x->comp_mask & IBV_SRQ_INIT_ATTR_PD)
		x->pd = shadow_pd(x->pd)->real;
	if (x->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)
		x->xrcd = shadow_xrcd(x->xrcd)->real;
	if (x->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		x->cq = shadow_cq(x->cq)->real;
	if (x->comp_mask != IBV_SRQ_INIT_ATTR_PD)
		return create ? create(real, x) : verbs_unsupported();
	srq = verbs_backend.ibv_create_srq(x->pd, &init);
	x->attr = init.attr;
	return srq;
}

static int srq_init(struct shadow_srq *srq, struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex init = *attr;
	int r;

	init.srq_context = srq;
	srq->real = real_create(shadow_context(context)->real, &init);
	if (!srq->real)
		return -errno;
	r = slots_make(srq, init.attr.max_wr);
	if (!r)
		r = handle_draw(srq);
	if (r)
		return r;
	attr->attr = init.attr;
	srq->max_sge = init.attr.max_sge;
	srq->pub.context = context;
	srq->pub.srq_context = attr->srq_context;
	srq->pub.pd = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL;
	srq->pub.handle = srq->real->handle;
	pthread_mutex_init(&srq->pub.mutex, NULL);
	pthread_cond_init(&srq->pub.cond, NULL);
	return 0;
}

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct shadow_srq *srq;
	int r = -ENOMEM;

	fermata_device_enter();
	srq = fermata_alloc(sizeof(*srq));
	if (srq)
		r = srq_init(srq, context, attr);
	if (r) {
		srq_free(srq);
		errno = -r;
		srq = NULL;
	} else {
		verbs_list_add(&shadow_context(context)->srqs, &srq->link);
	}
	fermata_device_leave();
	return srq ? &srq->pub : NULL;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex x = { .srq_context = attr->srq_context, .attr = attr->attr,
					  .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd };
	struct ibv_srq *srq;

	VERBS_PASS(ibv_create_srq, NULL, pd, attr);
	srq = verbs_create_srq_ex(pd->context, &x);
	if (srq)
		attr->attr = x.attr;
	return srq;
}

int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	struct ibv_srq *real = shadow_srq(srq)->real;
	int (*get)(struct ibv_srq *, uint32_t *) = VERBS_REAL_OP(real->context, get_srq_num);

	return get ? VERBS_DEVICE(get(real, number)) : EOPNOTSUPP;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	VERBS_PASS(ibv_modify_srq, EOPNOTSUPP, srq, attr, mask);
	if (mask & IBV_SRQ_MAX_WR) /* the slots are as many as were asked for */
		return EOPNOTSUPP;
	return VERBS_DEVICE(verbs_backend.ibv_modify_srq(shadow_srq(srq)->real, attr, mask));
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	VERBS_PASS(ibv_query_srq, EOPNOTSUPP, srq, attr);
	return VERBS_DEVICE(verbs_backend.ibv_query_srq(shadow_srq(srq)->real, attr));
}

EXPORT int ibv_destroy_srq(struct ibv_srq *p)
{
	struct shadow_srq *srq = shadow_srq(p);
	int r;

	VERBS_PASS(ibv_destroy_srq, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_destroy_srq(srq->real);
	if (!r) {
		srq->real = NULL;
		verbs_list_del(&srq->link);
		lock_acquire(&verbs_lock);
		srqs[srq->handle % SRQS] = NULL;
		lock_release(&verbs_lock);
		srq_free(srq);
	}
	fermata_device_leave();
	return r;
}

/* The slot + 1, or 0: as many are posted as the queue has room for. */
static uint32_t slot_take(struct shadow_srq *srq, uint64_t wr_id)
{
	uint32_t slot = srq->free;

	if (likely(slot)) {
		srq->free = srq->slot[slot - 1].next;
		srq->slot[slot - 1].wr_id = wr_id;
	}
	return slot;
}

static void slot_give(struct shadow_srq *srq, uint32_t slot)
{
	srq->slot[slot - 1].next = srq->free;
	srq->free = slot;
}

static int post_one(struct shadow_srq *srq, const struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr one = { .num_sge = wr->num_sge, .sg_list = wr->sg_list }, *bad;
	struct ibv_sge sges[VERBS_MAX_SGE];
	uint32_t slot;
	int r;

	if ((uint32_t)wr->num_sge > srq->max_sge || wr->num_sge > VERBS_MAX_SGE)
		return EINVAL;
	slot = slot_take(srq, wr->wr_id);
	if (!slot)
		return ENOMEM;
	if (unlikely(verbs_moved)) {
		for (int i = 0; i < wr->num_sge; i++) {
			sges[i] = wr->sg_list[i];
			sges[i].lkey = verbs_lkey_real(sges[i].lkey);
		}
		one.sg_list = sges;
	}
	one.wr_id = (uint64_t)srq->handle << 32 | slot;
	r = srq->real->context->ops.post_srq_recv(srq->real, &one, &bad);
	if (r)
		slot_give(srq, slot);
	return r;
}

int verbs_post_srq_recv(struct ibv_srq *p, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shadow_srq *srq = shadow_srq(p);
	int r = 0, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&srq->lock);
	for (; wr && !r; wr = r ? wr : wr->next)
		r = post_one(srq, wr);
	verbs_lock_release(&srq->lock, held);
	fermata_device_leave();
	if (unlikely(r))
		*bad = wr;
	return r;
}

int verbs_srq_complete(struct ibv_wc *wc)
{
	uint32_t handle = (uint32_t)(wc->wr_id >> 32), slot = (uint32_t)wc->wr_id;
	struct shadow_srq *srq = srqs[handle % SRQS];
	int held;

	if (!srq || srq->handle != handle)
		return 0;
	held = verbs_lock_acquire(&srq->lock);
	wc->wr_id = srq->slot[slot - 1].wr_id;
	slot_give(srq, slot);
	verbs_lock_release(&srq->lock, held);
	return 1;
}
