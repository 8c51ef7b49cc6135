/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_datagram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

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
