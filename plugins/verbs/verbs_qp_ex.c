/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended way to post, over the plain one: what a program says between wr_start and wr_complete is written into a row of
 * requests of the queue pair's own, which wr_complete posts as one list. So the device needs no such interface, and the queue
 * pair is saved as any other. The row has as many places as the send queue.
 *
 * The builder's lock is held from wr_start to wr_complete or wr_abort. Inline data is copied when it is named; a scatter list too.
 */
#include "plugins/verbs/verbs_internal.h"

struct verbs_builder {
	struct lock lock;
	int held; /* as verbs_lock_acquire said */
	int err;  /* what is wrong with the row, told by wr_complete */
	uint32_t count, capacity, max_sge, max_inline;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge; /* max_sge of each request */
	char *data;	     /* max_inline of each request */
};

#define OPS_DATAGRAM (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPS_UNRELIABLE                                                                                              \
	(OPS_DATAGRAM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | \
	 IBV_QP_EX_WITH_BIND_MW)
#define OPS_RELIABLE                                                                                                    \
	(OPS_UNRELIABLE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

static uint64_t ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return OPS_DATAGRAM;
	case IBV_QPT_UC:
		return OPS_UNRELIABLE;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return OPS_RELIABLE;
	default:
		return 0;
	}
}

static struct verbs_builder *builder_of(struct ibv_qp_ex *ex)
{
	return shadow_qp(&ex->qp_base)->builder;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct verbs_builder *b = builder_of(ex);

	int held = verbs_lock_acquire(&b->lock);

	b->held = held;
	b->count = 0;
	b->err = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct verbs_builder *b = builder_of(ex);

	verbs_lock_release(&b->lock, b->held);
}

/* All of them, or none: room for all is there before the first is posted. */
static int wr_complete(struct ibv_qp_ex *ex)
{
	struct verbs_builder *b = builder_of(ex);
	struct ibv_send_wr *bad;
	int r = b->err;

	for (uint32_t i = 0; i + 1 < b->count; i++)
		b->wr[i].next = &b->wr[i + 1];
	if (!r && b->count > 1)
		r = verbs_post_room(shadow_qp(&ex->qp_base), b->count);
	if (!r && b->count)
		r = verbs_post_send(&ex->qp_base, b->wr, &bad);
	verbs_lock_release(&b->lock, b->held);
	return r;
}

/* The next request of the row; NULL: it has no room, and comes to nothing. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct verbs_builder *b = builder_of(ex);
	struct ibv_send_wr *wr = &b->wr[b->count];

	if (b->err || b->count == b->capacity) {
		b->err = b->err ? b->err : ENOMEM;
		return NULL;
	}
	b->count++;
	/* Field by field: the whole is two cache lines, and of the rest each operation sets what is read. */
	wr->wr_id = ex->wr_id;
	wr->next = NULL;
	wr->sg_list = NULL;
	wr->num_sge = 0;
	wr->opcode = opcode;
	wr->send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	return wr;
}

/* The one that the setters are about. */
static struct ibv_send_wr *current(struct ibv_qp_ex *ex)
{
	struct verbs_builder *b = builder_of(ex);

	return b->err || !b->count ? NULL : &b->wr[b->count - 1];
}

static void begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	wr->imm_data = imm;
}

static void begin_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, uint64_t compare_add,
			 uint64_t swap)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void begin_invalidate(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(ex, opcode);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin_invalidate(ex, IBV_WR_LOCAL_INV, rkey);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin_invalidate(ex, IBV_WR_SEND_WITH_INV, rkey);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct ibv_send_wr *wr = begin(ex, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = current(ex);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct ibv_send_wr *wr = current(ex);

	if (wr)
		wr->qp_type.xrc.remote_srqn = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct verbs_builder *b = builder_of(ex);
	struct ibv_send_wr *wr = current(ex);

	if (!wr)
		return;
	if (n > b->max_sge) {
		b->err = ENOMEM;
		return;
	}
	wr->sg_list = b->sge + (size_t)(b->count - 1) * b->max_sge;
	wr->num_sge = (int)n;
	memcpy(wr->sg_list, list, n * sizeof(*list));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge one = { addr, length, lkey };

	wr_set_sge_list(ex, 1, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct verbs_builder *b = builder_of(ex);
	struct ibv_send_wr *wr = current(ex);
	size_t length = 0;
	char *to;

	if (!wr)
		return;
	to = b->data + (size_t)(b->count - 1) * b->max_inline;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > b->max_inline - length) {
			b->err = ENOMEM;
			return;
		}
		memcpy(to + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	wr->sg_list = b->sge + (size_t)(b->count - 1) * b->max_sge;
	wr->sg_list[0] = (struct ibv_sge){ (uintptr_t)to, (uint32_t)length, 0 };
	wr->num_sge = length ? 1 : 0;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf one = { addr, length };

	wr_set_inline_data_list(ex, 1, &one);
}

static void ops_fill(struct ibv_qp_ex *ex)
{
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
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
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}

int verbs_builder_create(struct shadow_qp *qp, uint64_t ops)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	uint32_t sges = cap->max_send_sge ? cap->max_send_sge : 1;
	size_t each = sizeof(struct ibv_send_wr) + sges * sizeof(struct ibv_sge) + cap->max_inline_data;
	struct verbs_builder *b;

	if (ops & ~ops_of(qp->pub.qp_type))
		return EOPNOTSUPP;
	b = fermata_alloc(sizeof(*b) + cap->max_send_wr * each);
	if (!b)
		return ENOMEM;
	b->capacity = cap->max_send_wr;
	b->max_sge = sges;
	b->max_inline = cap->max_inline_data;
	b->wr = (struct ibv_send_wr *)(b + 1);
	b->sge = (struct ibv_sge *)(b->wr + b->capacity);
	b->data = (char *)(b->sge + (size_t)b->capacity * sges);
	qp->builder = b;
	ops_fill(&qp->ex);
	return 0;
}
