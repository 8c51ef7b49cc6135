/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_xrc.h"

#include <fcntl.h>

struct ibv_xrcd *xrc_domain(struct ibv_context *ctx, int fd)
{
	struct ibv_xrcd_init_attr x = { .fd = fd, .oflags = O_CREAT, .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_xrcd *d = ibv_open_xrcd(ctx, &x);

	die_unless(d);
	return d;
}

struct ibv_srq *xrc_srq(struct ibv_xrcd *domain, uint32_t *ret_number)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 8, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = e.pd, .xrcd = domain,
					     .cq = e.rcq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
								       IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_srq *srq = ibv_create_srq_ex(e.ctx, &init);

	die_unless(srq && !ibv_get_srq_num(srq, ret_number));
	return srq;
}

struct ibv_qp *xrc_target(struct ibv_xrcd *domain)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain };
	struct ibv_qp *qp = ibv_create_qp_ex(e.ctx, &init);

	die_unless(qp);
	qp_to_init(qp, ALL_ACCESS);
	return qp;
}

struct ibv_qp *xrc_initiator(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = e.scq,
					 .cap = { .max_send_wr = 8, .max_send_sge = 1, .max_inline_data = 64 } };
	struct ibv_qp *qp = ibv_create_qp(e.pd, &init);

	die_unless(qp);
	qp_to_init(qp, ALL_ACCESS);
	return qp;
}

struct ibv_qp *xrc_handle(struct ibv_xrcd *domain, uint32_t number)
{
	struct ibv_qp_open_attr o = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
				      .qp_type = IBV_QPT_XRC_RECV, .qp_num = number, .xrcd = domain };
	struct ibv_qp *qp = ibv_open_qp(e.ctx, &o);

	die_unless(qp);
	return qp;
}

void xrc_receive(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)e.buf + id * XRC_ROOM, XRC_ROOM, e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	die_unless(!ibv_post_srq_recv(srq, &wr, &bad));
}

void xrc_post(struct ibv_qp *qp, uint32_t srqn, uint64_t id, enum ibv_wr_opcode op, unsigned int flags, uint64_t to, uint32_t rkey)
{
	char data[64];
	struct ibv_sge sge = { (uintptr_t)data, sizeof(data), 0 };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .send_flags = flags | IBV_SEND_INLINE }, *bad;

	fill(data, sizeof(data), (unsigned int)id);
	wr.qp_type.xrc.remote_srqn = srqn;
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	die_unless(!ibv_post_send(qp, &wr, &bad));
}

void xrc_got(uint64_t receive, uint32_t target, uint64_t id)
{
	struct ibv_wc wc = good_wc(e.rcq, receive);

	die_unless(wc.qp_num == target && wc.byte_len == 64 && filled(e.buf + receive * XRC_ROOM, 64, (unsigned int)id));
}

enum ibv_qp_state xrc_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	die_unless(!ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}
