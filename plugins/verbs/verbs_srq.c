/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues: their making, and their names. Their work is in verbs_srq_post.c. Those of extended connections have a number besides, which
 * is kept, and a completion queue of their own.
 *
 * The table of queues is changed under verbs_lock and read without: an entry is set before its handle is known to the device. A handle's generation
 * tells completions of a queue that is gone.
 *
 * Which queue pair a receive has served, only its number in the completion tells: each queue knows its queue pairs by the device's numbers, in a hash
 * table whose size follows their count, under the queue's lock.
 */
#include "plugins/verbs/verbs_internal.h"

#define SRQS 65536u
#define GENERATIONS 8192u

static struct shadow_srq *srqs[SRQS];
static uint32_t next_index, next_generation;

struct shadow_srq *verbs_srq_find(uint32_t handle)
{
	struct shadow_srq *srq = srqs[handle % SRQS];

	return srq && srq->handle == handle ? srq : NULL;
}

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

static void srq_free(struct shadow_srq *srq)
{
	if (!srq)
		return;
	if (srq->real)
		verbs_backend.ibv_destroy_srq(srq->real);
	fermata_free(srq->slots);
	fermata_free(srq->qps);
	fermata_free(srq);
}

/* One that the plain call can make is made by it, for a device may have no other. */
static struct ibv_srq *real_create(struct shadow_srq *srq, struct ibv_context *real, struct ibv_srq_init_attr_ex *x)
{
	struct ibv_srq *(*create)(struct ibv_context *, struct ibv_srq_init_attr_ex *) = VERBS_REAL_OP(real, create_srq_ex);
	struct ibv_srq_init_attr init = { .srq_context = srq, .attr = x->attr };
	struct ibv_srq *made;

	x->srq_context = srq;
	if (x->comp_mask & IBV_SRQ_INIT_ATTR_PD)
		x->pd = shadow_pd(x->pd)->real;
	if (x->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)
		x->xrcd = shadow_xrcd(x->xrcd)->real;
	if (x->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		x->cq = shadow_cq(x->cq)->real;
	if (x->comp_mask != IBV_SRQ_INIT_ATTR_PD)
		return create ? create(real, x) : verbs_unsupported();
	made = verbs_backend.ibv_create_srq(x->pd, &init);
	x->attr = init.attr;
	return made;
}

#define EXTENDED (uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ)

static int real_number(struct ibv_srq *real, uint32_t *ret)
{
	int (*get)(struct ibv_srq *, uint32_t *) = VERBS_REAL_OP(real->context, get_srq_num);

	return get ? get(real, ret) : EOPNOTSUPP;
}

int verbs_srq_number(const struct shadow_srq *srq, uint32_t *ret)
{
	return VERBS_DEVICE(real_number(srq->real, ret));
}

static int destroy(void *real)
{
	return verbs_backend.ibv_destroy_srq(real);
}

/* One whose number is none that a peer may still know for another queue. */
static struct ibv_srq *create_new(struct shadow_srq *srq, const struct shadow_context *c, struct ibv_srq_init_attr_ex *init)
{
	struct ibv_srq_init_attr_ex x;
	struct verbs_draws draws = { 0 };

	do {
		x = *init;
		srq->real = real_create(srq, c->real, &x);
	} while (srq->real && srq->xrcd && !verbs_srq_number(srq, &srq->number) && verbs_moved &&
		 verbs_draws_hold(&draws, verbs_srqn_known(c->device, srq->number), srq->real));
	srq->real = verbs_draws_end(&draws, srq->real, destroy);
	*init = x;
	return srq->real;
}

static int srq_init(struct shadow_srq *srq, struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex init = *attr;
	int r;

	if (init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE && init.srq_type == IBV_SRQT_BASIC)
		init.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_TYPE;
	if (init.comp_mask == EXTENDED && init.srq_type == IBV_SRQT_XRC) {
		srq->xrcd = attr->xrcd;
		srq->cq = attr->cq;
	}
	srq->special = init.comp_mask != IBV_SRQ_INIT_ATTR_PD && !srq->xrcd;
	if (!create_new(srq, shadow_context(context), &init))
		return -errno;
	r = verbs_srq_slots_make(srq, init.attr.max_wr, init.attr.max_sge);
	if (!r)
		r = handle_draw(srq);
	if (r)
		return r;
	attr->attr = srq->attr = init.attr;
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
	if (!shadow_srq(srq)->xrcd)
		return verbs_srq_number(shadow_srq(srq), number);
	*number = shadow_srq(srq)->number;
	return 0;
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
	int r;

	VERBS_PASS(ibv_query_srq, EOPNOTSUPP, srq, attr);
	r = VERBS_DEVICE(verbs_backend.ibv_query_srq(shadow_srq(srq)->real, attr));
	if (!r) { /* what it was told when it made the queue */
		attr->max_wr = shadow_srq(srq)->attr.max_wr;
		attr->max_sge = shadow_srq(srq)->attr.max_sge;
	}
	return r;
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

/* ---- its queue pairs ---- */

static struct shadow_qp **bucket(const struct shadow_srq *srq, uint32_t number)
{
	return &srq->qps[(number * 0x9e3779b1u) >> 8 & srq->qps_mask];
}

struct shadow_qp *verbs_srq_qp(const struct shadow_srq *srq, uint32_t number)
{
	struct shadow_qp *qp = srq->qps ? *bucket(srq, number) : NULL;

	while (qp && qp->real->qp_num != number)
		qp = qp->srq_next;
	return qp;
}

static void put(struct shadow_srq *srq, struct shadow_qp *qp)
{
	struct shadow_qp **at = bucket(srq, qp->real->qp_num);

	qp->srq_next = *at;
	*at = qp;
}

static int grow(struct shadow_srq *srq)
{
	uint32_t size = srq->qps ? (srq->qps_mask + 1) * 2 : 16, old = srq->qps ? srq->qps_mask + 1 : 0;
	struct shadow_qp **from = srq->qps, **more = fermata_alloc(size * sizeof(*more));

	if (!more)
		return -ENOMEM;
	srq->qps = more;
	srq->qps_mask = size - 1;
	for (uint32_t i = 0; i < old; i++)
		for (struct shadow_qp *qp = from[i], *next; qp; qp = next) {
			next = qp->srq_next;
			put(srq, qp);
		}
	fermata_free(from);
	return 0;
}

int verbs_srq_attach(struct shadow_qp *qp)
{
	struct shadow_srq *srq = shadow_srq(qp->pub.srq);
	int r = 0, held = verbs_lock_acquire(&srq->lock);

	if (!srq->qps || srq->qps_count > srq->qps_mask)
		r = grow(srq);
	if (!r) {
		put(srq, qp);
		srq->qps_count++;
	}
	verbs_lock_release(&srq->lock, held);
	return r;
}

/* @number: the device's. */
void verbs_srq_detach(struct shadow_qp *qp, uint32_t number)
{
	struct shadow_srq *srq = shadow_srq(qp->pub.srq);
	int held = verbs_lock_acquire(&srq->lock);
	struct shadow_qp **at = bucket(srq, number);

	while (*at && *at != qp)
		at = &(*at)->srq_next;
	if (*at) {
		*at = qp->srq_next;
		srq->qps_count--;
	}
	verbs_lock_release(&srq->lock, held);
}

/* ---- restart ---- */

/* Its queue pairs come back one by one. */
int verbs_srq_recreate(struct shadow_context *c, struct shadow_srq *srq)
{
	struct ibv_srq_init_attr_ex x = { .attr = srq->attr, .comp_mask = srq->xrcd ? EXTENDED : IBV_SRQ_INIT_ATTR_PD, .srq_type = IBV_SRQT_XRC,
					  .pd = srq->pub.pd, .xrcd = srq->xrcd, .cq = srq->cq };

	x.attr.srq_limit = 0;
	srq->real = VERBS_DEVICE(real_create(srq, c->real, &x));
	if (!srq->real)
		return fermata_fail(-errno, "a shared receive queue of %u on %s cannot be made again (error %d)", srq->attr.max_wr,
				    c->device->pub.name, errno);
	if (srq->qps)
		memset(srq->qps, 0, (srq->qps_mask + 1) * sizeof(*srq->qps));
	srq->qps_count = 0;
	return 0;
}

/* The limit that is armed: the device takes it away with its event. */
int verbs_srq_settle(struct shadow_srq *srq)
{
	struct ibv_srq_attr attr;
	int r = VERBS_DEVICE(verbs_backend.ibv_query_srq(srq->real, &attr));

	if (r)
		return fermata_fail(-r, "a shared receive queue does not tell its limit (error %d)", r);
	srq->limit = attr.srq_limit;
	return 0;
}
