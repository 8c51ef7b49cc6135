/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The polling half of the data path. A completion names its queue and slot in the wr_id that we posted; it gets the program's
 * wr_id and queue pair number back. Nothing is searched or allocated.
 *
 * Sends complete in the order of their queue, so a completion retires all unsignalled ones before it. Completions of our own
 * no-ops, and of queues that were reset or destroyed meanwhile, are taken out.
 */
#include "plugins/verbs/verbs_internal.h"

/* The wr_id's lower half is its position's, which is outstanding, so at or after the tail. */
static inline void ring_retire(struct verbs_ring *r, uint64_t wr_id)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	atomic_store_explicit(&r->tail, tail + (uint32_t)((uint32_t)wr_id - (uint32_t)tail) + 1, memory_order_release);
}

/* 1: the completion is the program's. The slot is read before the tail frees it. */
static inline int complete(struct shadow_cq *cq, struct ibv_wc *wc)
{
	uint64_t wr_id = wc->wr_id;
	struct shadow_qp *qp = verbs_handle_find(wr_id);
	struct verbs_ring *r;

	if (unlikely(wr_id >> 62 == 3))
		return verbs_srq_complete(wc);
	if (unlikely(!qp))
		return 0;
	r = wr_id >> 63 ? &qp->rq : &qp->sq;
	if (unlikely(r->handle != (uint32_t)(wr_id >> 32)))
		return 0;
	wc->qp_num = qp->pub.qp_num;
	if (r == &qp->rq) {
		const struct verbs_receive *slot = ring_receive(r, (uint32_t)wr_id);

		wc->wr_id = slot->wr_id;
		qp->received += wc->status == IBV_WC_SUCCESS;
		if (unlikely(verbs_moved) && qp->pub.qp_type == IBV_QPT_UD)
			verbs_datagram_virtual(qp, wc, slot->sge, slot->num_sge);
		if (unlikely(wc->wc_flags & IBV_WC_WITH_INV))
			verbs_mw_invalidated(qp->pub.context, wc);
	} else {
		const struct verbs_send *s = ring_send(r, (uint32_t)wr_id);

		wc->wr_id = s->wr_id;
		if (unlikely(atomic_load_explicit(&r->windows, memory_order_relaxed)))
			verbs_mw_retire(qp, wr_id, wc->status == IBV_WC_SUCCESS);
		if (unlikely(s->slot_flags & VERBS_SLOT_NOOP)) {
			cq->noops--;
			ring_retire(r, wr_id);
			return 0;
		}
	}
	ring_retire(r, wr_id);
	return 1;
}

/* Turns @n completions of the device into the program's, in place; how many are left. */
int verbs_complete(struct shadow_cq *cq, struct ibv_wc *wc, int n)
{
	int to = 0;

	for (int i = 0; i < n; i++) {
		int shown = complete(cq, &wc[i]);

		if (unlikely(to != i))
			wc[to] = wc[i];
		to += shown;
	}
	cq->since_armed |= to > 0;
	return to;
}

static int take_kept(struct shadow_cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t take = cq->kept_count < (uint32_t)n ? cq->kept_count : (uint32_t)n;

	memcpy(wc, cq->kept + cq->kept_first, take * sizeof(*wc));
	cq->kept_first += take;
	cq->kept_count -= take;
	if (!cq->kept_count)
		cq->kept_first = 0;
	return (int)take;
}

int verbs_poll_cq(struct ibv_cq *p, int n, struct ibv_wc *wc)
{
	struct shadow_cq *cq = shadow_cq(p);
	int got = 0, more, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&cq->lock);
	if (unlikely(cq->kept_count) && n > 0)
		got = take_kept(cq, n, wc);
	if (likely(got < n)) {
		more = cq->real->context->ops.poll_cq(cq->real, n - got, wc + got);
		if (more > 0)
			got += verbs_complete(cq, wc + got, more);
		else if (unlikely(more < 0) && !got)
			got = more;
	}
	verbs_lock_release(&cq->lock, held);
	fermata_device_leave();
	return got;
}
