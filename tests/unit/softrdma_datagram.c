/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_datagram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

void pair_open(struct pair *p, enum ibv_qp_type type, size_t size)
{
	end_open_as(&p->a, 1, size, type);
	end_open_as(&p->b, 1, size, type);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

enum ibv_qp_state qp_state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	die_unless(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

struct ibv_ah *datagram_address(struct end *e, const union ibv_gid *gid)
{
	struct ibv_ah_attr a = { .dlid = e->me.lid, .port_num = 1, .sl = 3 };
	struct ibv_ah *ah;

	if (gid) {
		a.is_global = 1;
		a.grh = (struct ibv_global_route){ .dgid = *gid, .hop_limit = 17, .traffic_class = 5,
						   .flow_label = 0x12345 };
	}
	ah = ibv_create_ah(e->pd, &a);
	die_unless(ah);
	return ah;
}

int datagram_post(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)e->buf, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &s, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED, .imm_data = (uint32_t)id };

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return post_wr(e, 0, &wr);
}

void device_only(void)
{
	if (getenv("OVER_PLUGIN"))
		skip();
}
