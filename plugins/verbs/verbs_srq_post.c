/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The work of shared receive queues. Owns for each a slot for every receive that is posted and has not completed, with all that is needed to post it
 * again; the device is given the slot's number and the queue's handle, so a completion finds its slot at once, in whatever order. A slot is
 * in one of two lists: the free ones, or the posted ones in the order of their posting, in which a restart posts them again.
 *
 *   free --> 3 -> 5 -> 0          posted: first --> 1 <-> 2 <-> 4 <-- last
 *
 * All under the queue's lock, which its pollers take, too.
 */
#include "plugins/verbs/verbs_internal.h"

static struct verbs_srq_slot *slot_at(const struct shadow_srq *srq, uint32_t number)
{
	return (struct verbs_srq_slot *)(srq->slots + (size_t)(number - 1) * srq->stride);
}

int verbs_srq_slots_make(struct shadow_srq *srq, uint32_t n, uint32_t max_sge)
{
	srq->stride = (uint32_t)(sizeof(struct verbs_srq_slot) + max_sge * sizeof(struct ibv_sge));
	srq->slots = fermata_alloc((size_t)n * srq->stride);
	if (!srq->slots)
		return -ENOMEM;
	for (uint32_t i = 1; i <= n; i++)
		slot_at(srq, i)->next = i < n ? i + 1 : 0;
	srq->free = 1;
	return 0;
}

/* A free slot at the end of the posted ones, or 0: as many are posted as the queue has room for. */
static uint32_t slot_take(struct shadow_srq *srq, const struct ibv_recv_wr *wr)
{
	uint32_t number = srq->free;
	struct verbs_srq_slot *slot;

	if (unlikely(!number))
		return 0;
	slot = slot_at(srq, number);
	srq->free = slot->next;
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint32_t)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		slot->sge[i] = wr->sg_list[i];
	slot->next = 0;
	slot->prev = srq->last;
	if (srq->last)
		slot_at(srq, srq->last)->next = number;
	else
		srq->first = number;
	srq->last = number;
	srq->posted++;
	return number;
}

static void slot_give(struct shadow_srq *srq, uint32_t number)
{
	struct verbs_srq_slot *slot = slot_at(srq, number);

	if (slot->prev)
		slot_at(srq, slot->prev)->next = slot->next;
	else
		srq->first = slot->next;
	if (slot->next)
		slot_at(srq, slot->next)->prev = slot->prev;
	else
		srq->last = slot->prev;
	srq->posted--;
	slot->next = srq->free;
	srq->free = number;
}

/* Gives the slot's receive to the device of this life; @sges serve when keys differ. */
static int slot_post(struct shadow_srq *srq, uint32_t number, struct ibv_sge *sges)
{
	struct verbs_srq_slot *slot = slot_at(srq, number);
	struct ibv_recv_wr one = { .wr_id = (uint64_t)srq->handle << 32 | number, .num_sge = (int)slot->num_sge,
				   .sg_list = slot->sge }, *bad;

	if (unlikely(verbs_moved)) {
		verbs_sges_real(srq->pub.context, sges, slot->sge, slot->num_sge);
		one.sg_list = sges;
	}
	return srq->real->context->ops.post_srq_recv(srq->real, &one, &bad);
}

static int post_one(struct shadow_srq *srq, const struct ibv_recv_wr *wr)
{
	struct ibv_sge sges[VERBS_MAX_SGE];
	uint32_t number;
	int r;

	if ((uint32_t)wr->num_sge > srq->attr.max_sge || wr->num_sge > VERBS_MAX_SGE)
		return EINVAL;
	number = slot_take(srq, wr);
	if (!number)
		return ENOMEM;
	r = slot_post(srq, number, sges);
	if (r)
		slot_give(srq, number);
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
	struct shadow_srq *srq = verbs_srq_find((uint32_t)(wc->wr_id >> 32));
	uint32_t number = (uint32_t)wc->wr_id;
	struct verbs_srq_slot *slot;
	struct shadow_qp *qp;
	int held;

	if (!srq) {
		if (wc->wr_id == VERBS_OWN)
			verbs_own_status = (int)wc->status;
		return 0;
	}
	held = verbs_lock_acquire(&srq->lock);
	slot = slot_at(srq, number);
	wc->wr_id = slot->wr_id;
	qp = verbs_srq_qp(srq, wc->qp_num);
	if (unlikely(verbs_moved) && qp && qp->pub.qp_type == IBV_QPT_UD)
		verbs_datagram_virtual(qp, wc, slot->sge, slot->num_sge);
	slot_give(srq, number);
	if (likely(qp)) {
		wc->qp_num = qp->pub.qp_num;
		qp->received += wc->status == IBV_WC_SUCCESS;
	} else if (verbs_moved && srq->xrcd) { /* a target, which may be another process's */
		wc->qp_num = verbs_qpn_virtual(wc->qp_num, verbs_port_first(&shadow_context(srq->pub.context)->device->port[1]));
	}
	verbs_lock_release(&srq->lock, held);
	if (unlikely(wc->wc_flags & IBV_WC_WITH_INV))
		verbs_mw_invalidated(srq->pub.context, wc);
	return 1;
}

/* Restart: nobody sends yet. The limit goes last, lest it be reached on the way. */
int verbs_srq_refill(struct shadow_srq *srq)
{
	struct ibv_srq_attr attr = { .srq_limit = srq->limit };
	struct ibv_sge sges[VERBS_MAX_SGE];
	int r = 0;

	for (uint32_t number = srq->first; !r && number; number = slot_at(srq, number)->next)
		r = VERBS_DEVICE(slot_post(srq, number, sges));
	if (!r && srq->limit)
		r = VERBS_DEVICE(verbs_backend.ibv_modify_srq(srq->real, &attr, IBV_SRQ_LIMIT));
	return r ? fermata_fail(-r, "the %u receives of a shared queue cannot be posted again (error %d)", srq->posted, r) : 0;
}
