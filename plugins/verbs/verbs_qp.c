/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: control path and re-making. Owns for each the attributes it was made with and the newest value of each attribute that it was
 * moved with, as the program said them; a restart walks a new one to the same state with them.
 *
 * The device's send queue is asked for one request more than the program's: the slot of the drain's no-op. Where the device cannot,
 * the no-op must find a free slot.
 *
 * What only the extended call can say of a queue pair is kept beside its attributes: creation flags, and the domain of an extended connection's target.
 */
#include "plugins/verbs/verbs_internal.h"

#define MORE_SAVED (uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS)

static int ring_init(struct verbs_ring *r, uint32_t capacity, uint32_t reserve, uint32_t max_sge, uint32_t max_inline,
		     size_t header)
{
	uint64_t slots = 1;

	while (slots < capacity + reserve)
		slots *= 2;
	r->capacity = capacity;
	r->mask = (uint32_t)slots - 1;
	r->max_sge = (uint16_t)max_sge;
	r->max_inline = (uint16_t)max_inline;
	r->stride = (uint16_t)(ALIGN_UP((uint32_t)header + max_sge * (uint32_t)sizeof(struct ibv_sge) + max_inline, RING_LINE) / RING_LINE);
	r->slots = verbs_alloc_aligned(slots * r->stride * RING_LINE);
	return r->slots ? 0 : -ENOMEM;
}

static void ring_empty(struct verbs_ring *r)
{
	atomic_store(&r->tail, 0);
	atomic_store(&r->head, 0);
	r->base = 0;
	r->credits = 0;
}

static int qp_init(struct shadow_qp *qp, struct ibv_qp_init_attr *attr, const struct ibv_qp_cap *cap)
{
	int r;

	qp->pub.qp_context = attr->qp_context;
	qp->pub.send_cq = attr->send_cq;
	qp->pub.recv_cq = attr->recv_cq;
	qp->pub.srq = attr->srq;
	qp->pub.handle = qp->real->handle;
	qp->pub.qp_num = qp->real->qp_num;
	qp->pub.state = IBV_QPS_RESET;
	qp->pub.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->pub.mutex, NULL);
	pthread_cond_init(&qp->pub.cond, NULL);
	qp->sq.signal_all = attr->sq_sig_all ? IBV_SEND_SIGNALED : 0;
	qp->init.cap = *cap;
	qp->init.cap.max_send_wr -= qp->reserve;
	if (qp->init.cap.max_inline_data > UINT16_MAX)
		qp->init.cap.max_inline_data = UINT16_MAX;
	attr->cap = qp->init.cap;
	r = ring_init(&qp->sq, attr->cap.max_send_wr, qp->reserve, cap->max_send_sge, attr->cap.max_inline_data,
		      sizeof(struct verbs_send));
	if (!r)
		r = ring_init(&qp->rq, cap->max_recv_wr, 0, cap->max_recv_sge, 0, sizeof(struct verbs_receive));
	if (!r)
		r = verbs_handle_draw(qp);
	if (!r && attr->srq) {
		r = verbs_srq_attach(qp);
		if (r)
			verbs_handle_drop(qp);
	}
	return r;
}

void verbs_qp_free(struct shadow_qp *qp)
{
	if (!qp)
		return;
	verbs_free_aligned(qp->sq.slots);
	verbs_free_aligned(qp->rq.slots);
	fermata_free(qp->builder);
	verbs_free_aligned(qp);
}

static int type_is_saved(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

static void more_note(struct shadow_qp *qp, const struct ibv_qp_init_attr_ex *ex)
{
	qp->more = ex->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	qp->xrcd = ex->comp_mask & IBV_QP_INIT_ATTR_XRCD ? ex->xrcd : NULL;
	qp->create_flags = ex->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? ex->create_flags : 0;
}

struct shadow_qp *verbs_qp_opened(struct ibv_context *context, const struct ibv_qp_open_attr *attr)
{
	struct shadow_qp *qp = verbs_alloc_aligned(sizeof(*qp));

	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	qp->pub.context = context;
	qp->pub.qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL;
	qp->pub.qp_num = attr->qp_num;
	qp->pub.qp_type = qp->init.qp_type = IBV_QPT_XRC_RECV;
	pthread_mutex_init(&qp->pub.mutex, NULL);
	pthread_cond_init(&qp->pub.cond, NULL);
	qp->xrcd = attr->xrcd;
	qp->opened = 1;
	list_init(&qp->groups);
	return qp;
}

/* @ex: what @attr cannot say, or NULL. */
static struct shadow_qp *qp_create(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
				   const struct ibv_qp_init_attr_ex *ex)
{
	struct shadow_qp *qp = verbs_alloc_aligned(sizeof(*qp));
	struct ibv_qp_cap cap;
	int r;

	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	qp->pub.context = context;
	qp->pub.pd = pd;
	qp->init = *attr;
	qp->asked = ex;
	if (ex)
		more_note(qp, ex);
	qp->reserve = attr->qp_type != IBV_QPT_XRC_RECV && attr->cap.max_send_wr != UINT32_MAX;
	qp->plain = !type_is_saved(attr->qp_type) || qp->more & ~MORE_SAVED;
	list_init(&qp->groups);
	verbs_qp_real_set(qp, verbs_qp_create_new(qp, &cap));
	if (!qp->real && qp->reserve) {
		qp->reserve = 0;
		verbs_qp_real_set(qp, verbs_qp_create_new(qp, &cap));
	}
	if (!qp->real) {
		verbs_qp_free(qp);
		return NULL;
	}
	qp->asked = NULL;
	r = qp_init(qp, attr, &cap);
	if (r) {
		verbs_backend.ibv_destroy_qp(qp->real);
		verbs_qp_free(qp);
		errno = -r;
		return NULL;
	}
	verbs_list_add(&shadow_context(context)->qps, &qp->link);
	return qp;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct shadow_qp *qp;

	VERBS_PASS(ibv_create_qp, NULL, pd, attr);
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC && attr->qp_type != IBV_QPT_UD &&
	    attr->qp_type != IBV_QPT_XRC_SEND)
		return verbs_unsupported();
	fermata_device_enter();
	qp = qp_create(pd->context, pd, attr, NULL);
	fermata_device_leave();
	return qp ? &qp->pub : NULL;
}

/* One that the plain call can make is made by it, and saved as that is. */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	const uint32_t plain = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	int target = init->qp_type == IBV_QPT_XRC_RECV, initiator = init->qp_type == IBV_QPT_XRC_SEND, r = 0;
	struct ibv_qp_init_attr attr = { .qp_context = init->qp_context, .send_cq = target ? NULL : init->send_cq,
					 .recv_cq = target || initiator ? NULL : init->recv_cq, .srq = init->srq,
					 .cap = init->cap, .qp_type = init->qp_type, .sq_sig_all = init->sq_sig_all };
	int special = target || init->comp_mask & ~plain || !(init->comp_mask & IBV_QP_INIT_ATTR_PD);
	struct ibv_pd *pd = init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL;
	struct shadow_qp *qp;

	fermata_device_enter();
	qp = qp_create(context, pd, &attr, special ? init : NULL);
	fermata_device_leave();
	if (qp && init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		r = verbs_builder_create(qp, init->send_ops_flags);
	if (!qp || !r) {
		init->cap = attr.cap;
		return qp ? &qp->pub : NULL;
	}
	ibv_destroy_qp(&qp->pub);
	errno = r;
	return NULL;
}

static void attr_record(struct shadow_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

#define TAKE(bit, member)             \
	if (mask & (bit))             \
		to->member = a->member;
	TAKE(IBV_QP_CUR_STATE, cur_qp_state)
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify)
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags)
	TAKE(IBV_QP_PKEY_INDEX, pkey_index)
	TAKE(IBV_QP_PORT, port_num)
	TAKE(IBV_QP_QKEY, qkey)
	TAKE(IBV_QP_AV, ah_attr)
	TAKE(IBV_QP_PATH_MTU, path_mtu)
	TAKE(IBV_QP_TIMEOUT, timeout)
	TAKE(IBV_QP_RETRY_CNT, retry_cnt)
	TAKE(IBV_QP_RNR_RETRY, rnr_retry)
	TAKE(IBV_QP_RQ_PSN, rq_psn)
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
	TAKE(IBV_QP_ALT_PATH, alt_ah_attr)
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
	TAKE(IBV_QP_SQ_PSN, sq_psn)
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state)
	TAKE(IBV_QP_DEST_QPN, dest_qp_num)
	TAKE(IBV_QP_RATE_LIMIT, rate_limit)
#undef TAKE
	qp->attr_mask |= mask;
}

/* RESET: nothing is posted, nothing is owed, and what the device may still say of former work is not heard. */
static void qp_reset(struct shadow_qp *qp)
{
	verbs_handle_renew(qp);
	if (qp->pub.send_cq)
		verbs_cq_purge(shadow_cq(qp->pub.send_cq), qp->pub.qp_num);
	if (qp->pub.recv_cq && qp->pub.recv_cq != qp->pub.send_cq)
		verbs_cq_purge(shadow_cq(qp->pub.recv_cq), qp->pub.qp_num);
	for (uint64_t at = atomic_load(&qp->sq.tail); at < atomic_load(&qp->sq.head); at++)
		if (ring_send(&qp->sq, at)->slot_flags & VERBS_SLOT_NOOP)
			shadow_cq(qp->pub.send_cq)->noops--;
	if (atomic_load(&qp->sq.windows))
		verbs_mw_reset(qp);
	ring_empty(&qp->sq);
	ring_empty(&qp->rq);
	qp->two_sided = qp->received = 0;
	qp->attr_mask = 0;
}

static void keep(struct ibv_cq *p)
{
	struct shadow_cq *cq = shadow_cq(p);
	int held = verbs_lock_acquire(&cq->lock);

	verbs_cq_keep(cq);
	verbs_lock_release(&cq->lock, held);
}

/*
 * The device forgets what it has not told yet of the queue's work: receives of a shared queue are known by what it tells alone, and so is which windows
 * are bound.
 */
static void told_keep(struct shadow_qp *qp)
{
	if (qp->pub.srq && qp->pub.recv_cq)
		keep(qp->pub.recv_cq);
	if (qp->pub.send_cq && atomic_load(&qp->sq.windows))
		keep(qp->pub.send_cq);
}

EXPORT int ibv_modify_qp(struct ibv_qp *p, struct ibv_qp_attr *attr, int mask)
{
	struct shadow_qp *qp = shadow_qp(p);
	struct ibv_qp_attr real;
	int r;

	VERBS_PASS(ibv_modify_qp, EOPNOTSUPP, p, attr, mask);
	fermata_device_enter();
	real = *attr;
	if (!qp->plain)
		verbs_qp_allow_noop(qp, &real, mask);
	if (verbs_moved) {
		verbs_peer_real(qp, &real, mask, 0);
		verbs_qp_fit(qp, &real, mask);
	}
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET)
		told_keep(qp);
	r = qp->real ? verbs_backend.ibv_modify_qp(qp->real, &real, mask) : EINVAL;
	if (!r) {
		if (mask & IBV_QP_STATE) {
			if (attr->qp_state == IBV_QPS_RESET)
				qp_reset(qp);
			qp->pub.state = attr->qp_state;
		}
		attr_record(qp, attr, mask & ~IBV_QP_STATE);
	}
	fermata_device_leave();
	return r;
}

static int query_qp(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	int r;

	if (!qp->real) { /* of a process that is gone */
		*attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR, .cur_qp_state = IBV_QPS_ERR };
		*init = qp->init;
		return 0;
	}
	r = verbs_backend.ibv_query_qp(qp->real, attr, mask, init);
	if (r)
		return r;
	attr->cap = qp->init.cap;
	if (qp->attr_mask & IBV_QP_PKEY_INDEX)
		attr->pkey_index = qp->attr.pkey_index;
	if (qp->attr_mask & IBV_QP_PATH_MTU)
		attr->path_mtu = qp->attr.path_mtu;
	if (qp->attr_mask & IBV_QP_DEST_QPN)
		attr->dest_qp_num = qp->attr.dest_qp_num;
	if (qp->attr_mask & IBV_QP_AV)
		attr->ah_attr = qp->attr.ah_attr;
	if (qp->attr_mask & IBV_QP_ACCESS_FLAGS)
		attr->qp_access_flags = qp->attr.qp_access_flags;
	if (qp->attr_mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr->max_rd_atomic = qp->attr.max_rd_atomic;
	if (qp->attr_mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		attr->max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	*init = qp->init;
	qp->pub.state = attr->qp_state;
	return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *p, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	VERBS_PASS(ibv_query_qp, EOPNOTSUPP, p, attr, mask, init);
	return VERBS_DEVICE(query_qp(shadow_qp(p), attr, mask, init));
}

EXPORT int ibv_destroy_qp(struct ibv_qp *p)
{
	struct shadow_qp *qp = shadow_qp(p);
	uint32_t number;
	int r;

	VERBS_PASS(ibv_destroy_qp, EOPNOTSUPP, p);
	fermata_device_enter();
	told_keep(qp);
	number = qp->real ? qp->real->qp_num : 0;
	r = qp->real ? verbs_backend.ibv_destroy_qp(qp->real) : 0;
	if (!r && qp->opened) {
		verbs_list_del(&qp->link);
		verbs_qp_free(qp);
	} else if (!r) {
		if (p->srq)
			verbs_srq_detach(qp, number);
		verbs_groups_forget(qp);
		if (qp->nobody)
			verbs_backend.ibv_destroy_ah(qp->nobody);
		qp_reset(qp);
		verbs_mw_orphan(qp);
		verbs_handle_drop(qp);
		verbs_list_del(&qp->link);
		verbs_qp_free(qp);
	}
	fermata_device_leave();
	return r;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	VERBS_PASS(ibv_qp_to_qp_ex, NULL, qp);
	return shadow_qp(qp)->builder ? &shadow_qp(qp)->ex : NULL;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	VERBS_PASS(ibv_query_ece, EOPNOTSUPP, qp, ece);
	return EOPNOTSUPP;
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	VERBS_PASS(ibv_set_ece, EOPNOTSUPP, qp, ece);
	return EOPNOTSUPP;
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	VERBS_PASS(ibv_query_qp_data_in_order, 0, qp, op, flags);
	return VERBS_DEVICE(verbs_backend.ibv_query_qp_data_in_order(shadow_qp(qp)->real, op, flags));
}
