/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting that is not the program's: what was posted in a former life, from its slots, the drain's no-op; and the binding of a window of type 1, which
 * the device posts. The queue's lock, or the program stands still.
 */
#include "plugins/verbs/verbs_internal.h"

/* The new key is known when the device has the request: maybe after it has completed. */
static void bind_named(struct shadow_mw *mw, struct verbs_send *s, uint32_t number)
{
	lock_acquire(&verbs_lock);
	mw->key = mw->pub.rkey = s->rkey = verbs_mw_key_virtual(mw, mw->real->rkey);
	if (mw->now.number == number)
		mw->now.rkey = mw->key;
	lock_release(&verbs_lock);
}

static int post_bind(struct shadow_qp *qp, struct shadow_mw *mw, const struct ibv_mw_bind *bind)
{
	uint64_t head = atomic_load_explicit(&qp->sq.head, memory_order_relaxed);
	struct verbs_send *s = ring_send(&qp->sq, head);
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	struct ibv_mw_bind b = *bind;
	uint32_t number;
	int r;

	if (!qp->sq.credits && !verbs_ring_refresh(&qp->sq, head, head))
		return ENOMEM;
	*s = (struct verbs_send){ .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .flags = bind->send_flags | qp->sq.signal_all };
	wr.bind_mw.mw = &mw->pub;
	wr.bind_mw.bind_info = bind->bind_info;
	verbs_mw_post(qp, s, &wr);
	number = s->imm;
	b.wr_id = ring_wr_id(&qp->sq, head);
	if (b.bind_info.mr)
		b.bind_info.mr = shadow_mr(b.bind_info.mr)->real;
	r = qp->real->context->ops.bind_mw(qp->real, mw->real, &b);
	if (r) {
		verbs_mw_unpost(qp, s);
		return r;
	}
	bind_named(mw, s, number);
	ring_advance(&qp->sq, head, 1);
	return 0;
}

int verbs_post_bind(struct shadow_qp *qp, struct shadow_mw *mw, const struct ibv_mw_bind *bind)
{
	int r, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&qp->sq.lock);
	r = post_bind(qp, mw, bind);
	verbs_lock_release(&qp->sq.lock, held);
	fermata_device_leave();
	return r;
}

/* What is needed to post the slot again. */
static void send_again(struct shadow_qp *qp, struct verbs_send *s, struct ibv_send_wr *wr, struct ibv_sge *sges)
{
	memset(wr, 0, sizeof(*wr));
	wr->opcode = s->opcode;
	wr->send_flags = s->flags;
	wr->imm_data = s->imm;
	wr->sg_list = sges;
	if (s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = s->remote_addr;
		wr->wr.atomic.rkey = s->rkey;
		wr->wr.atomic.compare_add = s->compare_add;
		wr->wr.atomic.swap = s->swap;
	} else if (qp->pub.qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = (struct ibv_ah *)(uintptr_t)s->remote_addr;
		wr->wr.ud.remote_qpn = s->rkey;
		wr->wr.ud.remote_qkey = s->qkey;
		verbs_ud_real(wr);
	} else {
		wr->wr.rdma.remote_addr = s->remote_addr;
		wr->wr.rdma.rkey = s->rkey;
	}
	if (qp->pub.qp_type == IBV_QPT_XRC_SEND)
		wr->qp_type.xrc.remote_srqn = s->qkey;
	verbs_remote_real(qp, wr);
	if (s->flags & IBV_SEND_INLINE) {
		sges[0] = (struct ibv_sge){ (uintptr_t)send_data(s), s->inline_length, 0 };
		wr->num_sge = s->inline_length ? 1 : 0;
	} else {
		verbs_sges_real(qp->pub.context, sges, send_data(s), s->num_sge);
		wr->num_sge = s->num_sge;
	}
}

int verbs_repost_send(struct shadow_qp *qp, uint64_t position)
{
	struct verbs_send *s = ring_send(&qp->sq, position);
	struct ibv_sge sges[qp->sq.max_sge + 1];
	struct ibv_send_wr wr, *bad;

	if (s->opcode == IBV_WR_BIND_MW)
		return verbs_repost_bind(qp, position);
	send_again(qp, s, &wr, sges);
	wr.wr_id = ring_wr_id(&qp->sq, position);
	return VERBS_DEVICE(qp->real->context->ops.post_send(qp->real, &wr, &bad));
}

int verbs_post_noop(struct shadow_qp *qp)
{
	uint64_t head = atomic_load_explicit(&qp->sq.head, memory_order_relaxed);
	struct verbs_send *s = ring_send(&qp->sq, head);
	struct shadow_cq *cq = shadow_cq(qp->pub.send_cq);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	int r;

	if (head - atomic_load_explicit(&qp->sq.tail, memory_order_relaxed) >= qp->sq.capacity + qp->reserve)
		return ENOMEM;
	memset(s, 0, sizeof(*s));
	s->opcode = IBV_WR_RDMA_WRITE;
	s->flags = IBV_SEND_SIGNALED;
	s->slot_flags = VERBS_SLOT_NOOP;
	wr.wr_id = ring_wr_id(&qp->sq, head);
	r = qp->pub.qp_type == IBV_QPT_UD ? verbs_datagram_noop(qp, &wr) : 0;
	if (!r)
		r = VERBS_DEVICE(qp->real->context->ops.post_send(qp->real, &wr, &bad));
	if (!r) {
		atomic_store_explicit(&qp->sq.head, head + 1, memory_order_relaxed);
		qp->sq.credits = 0;
		cq->noops++;
		cq->hush = 1;
	}
	return r;
}

int verbs_repost_receive(struct shadow_qp *qp, uint64_t position)
{
	struct verbs_receive *slot = ring_receive(&qp->rq, position);
	struct ibv_sge sges[qp->rq.max_sge + 1];
	struct ibv_recv_wr wr = { .num_sge = (int)slot->num_sge, .sg_list = sges }, *bad;

	verbs_sges_real(qp->pub.context, sges, slot->sge, slot->num_sge);
	wr.wr_id = ring_wr_id(&qp->rq, position);
	return VERBS_DEVICE(qp->real->context->ops.post_recv(qp->real, &wr, &bad));
}
