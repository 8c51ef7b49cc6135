/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The polling half of the data path. A completion names its queue and slot in the wr_id that we posted; it gets the program's
 * wr_id and queue pair number back. Nothing is searched or allocated.
 *
 * Sends complete in the order of their queue, so a completion retires all unsignalled ones before it. Completions of our own
 * no-ops, and of queues that were reset or destroyed meanwhile, are taken out.
 */
#include "plugins/verbs/verbs_internal.h"

static inline int complete_send(struct shadow_cq *cq, struct shadow_qp *qp, struct ibv_wc *wc)
{
	uint32_t low = (uint32_t)wc->wr_id;
	uint64_t tail = atomic_load_explicit(&qp->sq.tail, memory_order_relaxed);
	uint64_t position = tail + (uint32_t)(low - (uint32_t)tail);
	const struct verbs_send *s = ring_send(&qp->sq, position);

	wc->wr_id = s->wr_id;
	wc->qp_num = qp->pub.qp_num;
	atomic_store_explicit(&qp->sq.tail, position + 1, memory_order_release);
	if (likely(!(s->slot_flags & VERBS_SLOT_NOOP)))
		return 1;
	cq->noops--;
	return 0;
}

static inline int complete_receive(struct shadow_qp *qp, struct ibv_wc *wc)
{
	uint32_t low = (uint32_t)wc->wr_id;
	uint64_t tail = atomic_load_explicit(&qp->rq.tail, memory_order_relaxed);
	uint64_t position = tail + (uint32_t)(low - (uint32_t)tail);

	wc->wr_id = ring_receive(&qp->rq, position)->wr_id;
	wc->qp_num = qp->pub.qp_num;
	atomic_store_explicit(&qp->rq.tail, position + 1, memory_order_release);
	qp->received += wc->status == IBV_WC_SUCCESS;
	return 1;
}

/* Turns @n completions of the device into the program's, in place; how many are left. */
int verbs_complete(struct shadow_cq *cq, struct ibv_wc *wc, int n)
{
	int to = 0;

	for (int i = 0; i < n; i++) {
		struct shadow_qp *qp = verbs_handle_find(wc[i].wr_id);
		int shown;

		if (unlikely(!qp))
			continue;
		shown = wc[i].wr_id & VERBS_HANDLE_RECEIVE ? complete_receive(qp, &wc[i]) :
							     complete_send(cq, qp, &wc[i]);
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
