/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each memory window is bound to, which no device tells: it is kept by what the program posts and what completes.
 *
 * A request that binds or invalidates is counted in its ring (`windows`) from before the device has it until the tail passes it; what retires sends
 * looks at each of them. All before the one that completes were executed well, or they would have had an error of their own; a window then is
 *
 *   type 1   what the newest of these bindings says; one of no length unbinds it
 *   type 2   bound, if there were more bindings than invalidations, as the newest binding says: a bound one cannot be bound, so these take turns, and
 *            the order in which their completions are polled, from several queues, does not matter:
 *
 *              bind 1 -- invalidated -- bind 2 (not polled yet) -- invalidated by a peer (polled): 1 - 2, then 2 - 2: not bound
 *
 * Bindings are numbered by their window in the order of posting. What a reset or destroyed queue had executed of its last, unsignalled, requests nobody
 * knows: then a checkpoint is refused as long as the window is there.
 *
 * All under verbs_lock, which is taken within the locks of queues.
 */
#include "plugins/verbs/verbs_internal.h"

static struct shadow_mw *window_of(const struct verbs_send *s)
{
	return (struct shadow_mw *)(uintptr_t)s->swap;
}

int verbs_mw_bound(const struct shadow_mw *mw, const struct verbs_binding *b)
{
	if (!b->number || !b->length || !b->mr)
		return 0;
	return mw->pub.type == IBV_MW_TYPE_1 || (b->balance > 0 && b->qp);
}

static void bound(struct verbs_binding *b, const struct verbs_send *s, struct shadow_qp *qp)
{
	b->balance++;
	if ((int32_t)(s->imm - b->number) < 0)
		return;
	b->number = s->imm;
	b->rkey = s->rkey;
	b->access = s->qkey;
	b->addr = s->remote_addr;
	b->length = s->compare_add;
	b->mr = (struct shadow_mr *)(uintptr_t)s->region;
	b->qp = qp;
}

void verbs_mw_post(struct shadow_qp *qp, struct verbs_send *s, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct shadow_mw *mw;

	atomic_fetch_add(&qp->sq.windows, 1);
	if (wr->opcode != IBV_WR_BIND_MW)
		return;
	mw = wr->bind_mw.mw ? shadow_mw(wr->bind_mw.mw) : NULL;
	s->rkey = wr->bind_mw.rkey;
	s->remote_addr = info->addr;
	s->compare_add = info->length;
	s->qkey = info->mw_access_flags;
	s->region = info->mr ? (uintptr_t)shadow_mr(info->mr) : 0;
	s->swap = (uintptr_t)mw;
	if (info->mr)
		shadow_mr(info->mr)->windows = 1;
	if (!mw)
		return;
	lock_acquire(&verbs_lock);
	s->imm = ++mw->posted;
	mw->users++;
	lock_release(&verbs_lock);
}

/* verbs_lock held */
static void let_go(struct shadow_qp *qp, const struct verbs_send *s)
{
	struct shadow_mw *mw = s->opcode == IBV_WR_BIND_MW ? window_of(s) : NULL;

	atomic_fetch_sub(&qp->sq.windows, 1);
	if (mw && !--mw->users && !mw->real)
		fermata_free(mw);
}

void verbs_mw_unpost(struct shadow_qp *qp, const struct verbs_send *s)
{
	lock_acquire(&verbs_lock);
	let_go(qp, s);
	lock_release(&verbs_lock);
}

void verbs_mw_executed(struct shadow_qp *qp, const struct verbs_send *s, int at_checkpoint)
{
	struct shadow_mw *mw = s->opcode == IBV_WR_BIND_MW ? window_of(s) : verbs_mw_find(qp->pub.context, s->imm);
	struct verbs_binding *b = mw ? at_checkpoint ? &mw->then : &mw->now : NULL;

	if (!mw)
		return;
	if (s->opcode == IBV_WR_BIND_MW)
		bound(b, s, qp);
	else
		b->balance--;
}

void verbs_mw_retire(struct shadow_qp *qp, uint64_t position, int good)
{
	uint64_t tail = atomic_load(&qp->sq.tail), last = tail + (uint32_t)((uint32_t)position - (uint32_t)tail);

	lock_acquire(&verbs_lock);
	for (uint64_t at = tail; at <= last; at++) {
		const struct verbs_send *s = ring_send(&qp->sq, at);

		if (!send_of_window(s->opcode))
			continue;
		if (at < last || good)
			verbs_mw_executed(qp, s, 0);
		let_go(qp, s);
	}
	lock_release(&verbs_lock);
}

void verbs_mw_invalidated(struct ibv_context *context, struct ibv_wc *wc)
{
	struct shadow_mw *mw;

	if (wc->status != IBV_WC_SUCCESS)
		return;
	lock_acquire(&verbs_lock);
	mw = verbs_mw_find_real(context, wc->invalidated_rkey);
	if (mw) {
		mw->now.balance--;
		wc->invalidated_rkey = verbs_mw_key_virtual(mw, wc->invalidated_rkey);
	}
	lock_release(&verbs_lock);
}

void verbs_mw_reset(struct shadow_qp *qp)
{
	lock_acquire(&verbs_lock);
	for (uint64_t at = atomic_load(&qp->sq.tail); at < atomic_load(&qp->sq.head); at++) {
		const struct verbs_send *s = ring_send(&qp->sq, at);
		struct shadow_mw *mw;

		if (!send_of_window(s->opcode))
			continue;
		mw = s->opcode == IBV_WR_BIND_MW ? window_of(s) : verbs_mw_find(qp->pub.context, s->imm);
		if (mw)
			mw->unsure = 1;
		let_go(qp, s);
	}
	lock_release(&verbs_lock);
}

void verbs_mw_orphan(struct shadow_qp *qp)
{
	struct shadow_mw *mw;

	lock_acquire(&verbs_lock);
	list_each(mw, &shadow_context(qp->pub.context)->mws, link)
		if (mw->now.qp == qp)
			mw->now.qp = NULL;
	lock_release(&verbs_lock);
}

void verbs_mw_region_gone(struct shadow_mr *mr)
{
	struct shadow_mw *mw;

	lock_acquire(&verbs_lock);
	list_each(mw, &shadow_context(mr->pub.context)->mws, link)
		if (mw->now.mr == mr)
			mw->now.mr = NULL;
	lock_release(&verbs_lock);
}
