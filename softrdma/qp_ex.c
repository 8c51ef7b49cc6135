/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended way to post: wr_start takes the send queue's lock, each operation writes its request into the ring
 * behind the queue's tail, where nobody looks, and wr_complete moves the tail over all of them and runs the queue;
 * or none of them, if one was wrong.
 */
#include <errno.h>
#include <string.h>

#include "softrdma/device.h"
#include "softrdma/export.h"

static struct sr_qp *sr_qp_of(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct sr_qp, ex);
}

/* A new request at the end; NULL: there was or is an error. */
static struct sr_wqe *request(struct ibv_qp_ex *ex, uint32_t opcode)
{
	struct sr_qp *qp = sr_qp_of(ex);
	struct sr_shm_qp *q = qp->shm;
	struct sr_wqe *w;

	qp->building = NULL;
	if (!qp->build_err && !(qp->ops & 1u << opcode))
		qp->build_err = EINVAL;
	if (!qp->build_err &&
	    qp->build_tail - atomic_load_explicit(&q->sq_freed, memory_order_acquire) >= q->sq_cap)
		qp->build_err = ENOMEM;
	if (qp->build_err)
		return NULL;
	w = sr_sq_slot(sr_context(ex->qp_base.context)->seg, q, qp->build_tail++);
	w->wr_id = ex->wr_id;
	w->opcode = opcode;
	w->flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	w->nsge = 0;
	w->length = 0;
	w->imm = 0;
	qp->building = w;
	return w;
}

static struct sr_wqe *remote(struct ibv_qp_ex *ex, uint32_t opcode, uint32_t rkey, uint64_t addr)
{
	struct sr_wqe *w = request(ex, opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = addr;
	}
	return w;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct sr_wqe *w = remote(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	if (w) {
		w->compare_add = compare;
		w->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct sr_wqe *w = remote(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);

	if (w)
		w->compare_add = add;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct sr_qp *qp = sr_qp_of(ex);
	struct sr_wqe *w = request(ex, IBV_WR_BIND_MW);

	if (!w)
		return;
	qp->build_err = sr_bind_check(qp, mw, rkey, info, IBV_MW_TYPE_2);
	sr_wqe_bind(w, rkey, info);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t key)
{
	struct sr_wqe *w = request(ex, IBV_WR_LOCAL_INV);

	if (w)
		w->imm = key;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	remote(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	remote(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct sr_wqe *w = remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (w)
		w->imm = imm;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	request(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct sr_wqe *w = request(ex, IBV_WR_SEND_WITH_IMM);

	if (w)
		w->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t key)
{
	struct sr_wqe *w = request(ex, IBV_WR_SEND_WITH_INV);

	if (w)
		w->imm = key;
}

/* ---- what belongs to the request that was begun last ---- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct sr_qp *qp = sr_qp_of(ex);

	if (qp->building && !ah)
		qp->build_err = EINVAL;
	else if (qp->building)
		sr_wqe_address(sr_context(ex->qp_base.context), qp, qp->building, ah, qpn, qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct sr_qp *qp = sr_qp_of(ex);

	if (qp->building)
		qp->building->target = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct sr_qp *qp = sr_qp_of(ex);
	struct sr_wqe *w = qp->building;
	size_t i;

	if (!w)
		return;
	if (n > qp->cap.max_send_sge) {
		qp->build_err = EINVAL;
		return;
	}
	w->nsge = (uint32_t)n;
	w->length = 0;
	for (i = 0; i < n; i++) {
		w->sge[i] = (struct sr_sge){ list[i].addr, list[i].length, list[i].lkey };
		w->length += list[i].length;
	}
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge s = { addr, length, lkey };

	wr_set_sge_list(ex, 1, &s);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct sr_qp *qp = sr_qp_of(ex);
	struct sr_wqe *w = qp->building;
	size_t i;

	if (!w)
		return;
	w->flags |= IBV_SEND_INLINE;
	w->length = 0;
	for (i = 0; i < n; i++) {
		if (list[i].length > qp->cap.max_inline_data - w->length) {
			qp->build_err = ENOMEM;
			return;
		}
		memcpy((char *)w->sge + w->length, list[i].addr, list[i].length);
		w->length += list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf b = { addr, length };

	wr_set_inline_data_list(ex, 1, &b);
}

/* ---- the bracket ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct sr_qp *qp = sr_qp_of(ex);
	struct sr_context *ctx = sr_context(ex->qp_base.context);

	sr_sq_lock(ctx, &ctx->self, qp->shm);
	qp->building = NULL;
	qp->build_err = sr_qp_sends(qp) ? 0 : EINVAL;
	qp->build_tail = sr_sq_begin(qp->shm);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	rlock_release(&sr_qp_of(ex)->shm->sq_lock);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct sr_qp *qp = sr_qp_of(ex);
	int err = qp->build_err;

	if (err) {
		wr_abort(ex);
		return err;
	}
	atomic_store_explicit(&qp->shm->sq_tail, qp->build_tail, memory_order_release);
	sr_qp_run_locked(sr_context(ex->qp_base.context), qp);
	return 0;
}

static const struct {
	uint64_t flag;
	uint32_t opcode;
} flag_ops[] = {
	{ IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE },
	{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ IBV_QP_EX_WITH_SEND, IBV_WR_SEND },
	{ IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM },
	{ IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ },
	{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV },
	{ IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW },
	{ IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV },
};

int sr_send_ops_check(enum ibv_qp_type type, uint64_t flags)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flag_ops); i++) {
		if ((flags & flag_ops[i].flag) && !(sr_qp_ops(type) & 1u << flag_ops[i].opcode))
			return EOPNOTSUPP;
		flags &= ~flag_ops[i].flag;
	}
	return flags ? EOPNOTSUPP : 0;
}

void sr_send_ops_fill(struct sr_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->extended = 1;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return sr_qp(qp)->extended ? &sr_qp(qp)->ex : NULL;
}
