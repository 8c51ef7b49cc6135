/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows over a restart. At the dump it is settled for each what it is bound to, with the requests that were executed and not retired; what cannot be
 * had again is refused. The restart
 *
 *   RECREATE    makes all of them, and binds those of type 1, by a queue pair of its own: any of the domain may. Then their keys are known and published.
 *   RECONNECT   binds those of type 2 by the queue pairs that they belong to, as soon as these can send. Nobody sends before all have done so.
 *   REFILL      posts the bindings that waited in queues, among the other sends, in their order.
 *
 * The program stands still.
 */
#include "plugins/verbs/verbs_internal.h"

#define BIND_NS 2000000000ull

int verbs_own_status;

/* ---- checkpoint ---- */

static int waits(struct shadow_qp *qp, const struct verbs_send *s)
{
	struct shadow_mw *mw = (struct shadow_mw *)(uintptr_t)s->swap;

	if (s->opcode != IBV_WR_BIND_MW)
		return 0;
	if (!mw->real)
		return fermata_fail(-EOPNOTSUPP, "QP 0x%x is still to bind a memory window that was given back meanwhile, which cannot be "
				    "saved yet", qp->pub.qp_num);
	if (mw->pub.type == IBV_MW_TYPE_1 && mw->waits_on && mw->waits_on != qp)
		return fermata_fail(-EOPNOTSUPP, "QPs 0x%x and 0x%x are still to bind the same memory window (key 0x%x), which cannot be saved yet",
				    mw->waits_on->pub.qp_num, qp->pub.qp_num, mw->key);
	if (!mw->waits_on) {
		mw->waits_on = qp;
		mw->waits_for = s->rkey;
	}
	return 0;
}

static int settle_queue(struct shadow_qp *qp)
{
	int r = 0;

	qp->windows = NULL;
	if (!atomic_load(&qp->sq.windows))
		return 0;
	for (uint64_t at = atomic_load(&qp->sq.tail); !r && at < atomic_load(&qp->sq.head); at++) {
		const struct verbs_send *s = ring_send(&qp->sq, at);

		if (send_of_window(s->opcode) && at < qp->pending)
			verbs_mw_executed(qp, s, 1);
		else if (send_of_window(s->opcode))
			r = waits(qp, s);
	}
	return r;
}

static int settle_window(struct shadow_mw *mw)
{
	const struct verbs_binding *b = &mw->then;
	uint32_t state = b->qp ? b->qp->real_state : IBV_QPS_ERR;

	if (mw->unsure)
		return fermata_fail(-EOPNOTSUPP, "whether the memory window of key 0x%x is bound nobody knows: the queue that was to bind it was "
				    "emptied before it had told; it cannot be saved", mw->key);
	if (!verbs_mw_bound(mw, b))
		return 0;
	if (mw->pub.type == IBV_MW_TYPE_1)
		return !mw->waits_on || !((mw->waits_for ^ (b->rkey + 1)) & 0xff) ? 0 :
			fermata_fail(-EOPNOTSUPP, "QP 0x%x is still to bind a memory window (key 0x%x) after a binding that failed, which cannot "
				     "be saved yet", mw->waits_on->pub.qp_num, mw->key);
	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE)
		return fermata_fail(-EOPNOTSUPP, "a memory window (key 0x%x) is bound to QP 0x%x, which cannot send in its state %u; it cannot be "
				    "saved yet", b->rkey, b->qp->pub.qp_num, state);
	mw->of_qp = b->qp->windows;
	b->qp->windows = mw;
	return 0;
}

int verbs_mw_settle(struct shadow_context *c)
{
	struct shadow_mw *mw;
	struct shadow_qp *qp;
	int r = 0;

	list_each(mw, &c->mws, link) {
		mw->then = mw->now;
		mw->waits_on = NULL;
	}
	list_each(qp, &c->qps, link)
		r = r ? r : settle_queue(qp);
	list_each(mw, &c->mws, link)
		r = r ? r : settle_window(mw);
	return r;
}

/* ---- restart ---- */

int verbs_mw_recreate(struct shadow_context *c, struct shadow_mw *mw)
{
	struct ibv_pd *pd = shadow_pd(mw->pub.pd)->real;

	mw->real = pd->context->ops.alloc_mw ? VERBS_DEVICE(pd->context->ops.alloc_mw(pd, mw->pub.type)) : verbs_unsupported();
	if (!mw->real)
		return fermata_fail(-errno, "a memory window (key 0x%x) cannot be made again on %s (error %d)", mw->key,
				    c->device->pub.name, errno);
	mw->shift = 0;
	if (mw->pub.type == IBV_MW_TYPE_1) /* the next binding's key is one more than this */
		mw->shift = ((mw->waits_on ? mw->waits_for - 1 : mw->key) - mw->real->rkey) & 0xff;
	verbs_mw_insert(mw);
	return 0;
}

static struct ibv_mw_bind_info info_of(const struct verbs_binding *b)
{
	return (struct ibv_mw_bind_info){ .mr = b->mr->real, .addr = b->addr, .length = b->length, .mw_access_flags = b->access };
}

static int fail(const struct shadow_mw *mw, int r)
{
	return fermata_fail(-EIO, "a memory window (key 0x%x) cannot be bound again (error or status %d)", mw->then.rkey, r);
}

/* By a queue pair of ours whose completions are @cq's. The device's call, within its brackets. */
static int rebind(struct shadow_mw *mw, struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_mw_bind bind = { .wr_id = VERBS_OWN, .send_flags = IBV_SEND_SIGNALED, .bind_info = info_of(&mw->then) };
	uint64_t until = raw_now_ns() + BIND_NS;
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int r = qp->context->ops.bind_mw(qp, mw->real, &bind);

	while (!r && !cq->context->ops.poll_cq(cq, 1, &wc))
		if (raw_now_ns() > until)
			r = ETIMEDOUT;
	if (!r)
		r = (int)wc.status;
	mw->shift = (mw->then.rkey - mw->real->rkey) & 0xff;
	return r;
}

int verbs_mw_rebind_all(struct shadow_context *c)
{
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct shadow_mw *mw;
	int r = 0;

	fermata_device_enter();
	list_each(mw, &c->mws, link) {
		struct ibv_pd *pd = shadow_pd(mw->pub.pd)->real;

		if (r || mw->pub.type != IBV_MW_TYPE_1 || !verbs_mw_bound(mw, &mw->then))
			continue;
		if (qp && qp->pd != pd) {
			verbs_backend.ibv_destroy_qp(qp);
			qp = NULL;
		}
		if (!cq)
			cq = verbs_backend.ibv_create_cq(c->real, 1, NULL, NULL, 0);
		if (cq && !qp)
			qp = verbs_loop_create(c, pd, cq);
		r = qp ? rebind(mw, qp, cq) : EIO;
		if (r)
			r = fail(mw, r);
	}
	if (qp)
		verbs_backend.ibv_destroy_qp(qp);
	if (cq)
		verbs_backend.ibv_destroy_cq(cq);
	fermata_device_leave();
	return r;
}

/* Its completion is nobody's, and dropped. */
int verbs_mw_rebind_qp(struct shadow_qp *qp)
{
	struct shadow_cq *cq = shadow_cq(qp->pub.send_cq);

	for (struct shadow_mw *mw = qp->windows; mw; mw = mw->of_qp) {
		struct ibv_send_wr wr = { .wr_id = VERBS_OWN, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
		uint64_t until = raw_now_ns() + BIND_NS;
		int r;

		wr.bind_mw.mw = mw->real;
		wr.bind_mw.rkey = verbs_mw_key_real(mw, mw->then.rkey);
		wr.bind_mw.bind_info = info_of(&mw->then);
		verbs_own_status = -1;
		cq->hush = 1;
		r = VERBS_DEVICE(qp->real->context->ops.post_send(qp->real, &wr, &bad));
		while (!r && verbs_own_status < 0) {
			if (verbs_cq_keep(cq) < 0)
				return -ENOMEM;
			if (raw_now_ns() > until)
				r = ETIMEDOUT;
		}
		if (r || verbs_own_status)
			return fail(mw, r ? r : verbs_own_status);
	}
	return 0;
}

/* What waited in a queue. 0 or an errno. */
int verbs_repost_bind(struct shadow_qp *qp, uint64_t position)
{
	const struct verbs_send *s = ring_send(&qp->sq, position);
	struct shadow_mw *mw = (struct shadow_mw *)(uintptr_t)s->swap;
	struct shadow_mr *mr = (struct shadow_mr *)(uintptr_t)s->region;
	struct ibv_send_wr wr = { .wr_id = ring_wr_id(&qp->sq, position), .opcode = IBV_WR_BIND_MW, .send_flags = s->flags }, *bad;
	struct ibv_mw_bind bind = { .wr_id = wr.wr_id, .send_flags = s->flags };
	int r;

	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr ? mr->real : NULL, .addr = s->remote_addr, .length = s->compare_add,
						    .mw_access_flags = s->qkey };
	if (mw->pub.type == IBV_MW_TYPE_1) {
		r = VERBS_DEVICE(qp->real->context->ops.bind_mw(qp->real, mw->real, &bind));
		return r ? r : verbs_mw_key_virtual(mw, mw->real->rkey) == s->rkey ? 0 : EIO;
	}
	wr.bind_mw.mw = mw->real;
	wr.bind_mw.rkey = verbs_mw_key_real(mw, s->rkey);
	wr.bind_mw.bind_info = bind.bind_info;
	return VERBS_DEVICE(qp->real->context->ops.post_send(qp->real, &wr, &bad));
}
