/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections, datagrams, groups. */
#include "verbs_objects.h"

#include <string.h>

/* ---- queue pairs ---- */

/* Three unsignalled sends for two receives: the third is dropped, and stays so. */
static void uc_make(void)
{
	connected(IBV_QPT_UC);
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post_recv(&e, 0, 2, 8192, 64));
	for (uint64_t i = 0; i < 3; i++) {
		fill(e.buf + 64 * i, 64, (unsigned int)i);
		die_unless(!post(&e, 0, 10 + i, IBV_WR_SEND_WITH_IMM, 64 * i, 64, 0, 0));
	}
	die_unless(!post(&e, 0, 13, IBV_WR_RDMA_WRITE, 0, 64, 12288, IBV_SEND_INLINE));
}

static void uc_check(void)
{
	die_unless(good_wc(e.rcq, 1).imm_data == (10 ^ 0x5a5a) && good_wc(e.rcq, 2).imm_data == (11 ^ 0x5a5a));
	expect_empty(e.rcq);
	expect_empty(e.scq);
	die_unless(filled(e.buf + 4096, 64, 0) && filled(e.buf + 8192, 64, 1) && filled(e.buf + 12288, 64, 0));
	send_works();
	die_unless(!post(&e, 0, 5, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 64, 12288, IBV_SEND_SIGNALED)); /* no receive: dropped */
	good_wc(e.scq, 5);
	die_unless(!post(&e, 0, 6, IBV_WR_RDMA_WRITE, 128, 64, 12288, IBV_SEND_SIGNALED));
	good_wc(e.scq, 6);
	die_unless(filled(e.buf + 12288, 64, 2));
	expect_empty(e.rcq);
}

/* ---- datagrams: queue pair 0 sends to 1, and to a group ---- */

#define ROUTE 40 /* bytes before the data of each receive */
#define GROUP { .raw = { 0xff, 0x12, [15] = 7 } }

static struct ibv_ah *ah;
static union ibv_gid my_gid;

static void datagram(struct ibv_ah *to, int q, uint32_t qpn, uint64_t id, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)e.buf, 64, e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = flags };

	wr.wr.ud.ah = to;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = END_QKEY;
	fill(e.buf, 64, (unsigned int)id);
	die_unless(!post_wr(&e, q, &wr));
}

/* A datagram has come to @q's receive @id, from the other; its completion. */
static struct ibv_wc datagram_came(int q, uint64_t id, uint64_t sent)
{
	struct ibv_wc wc = good_wc(e.rcq, id);
	struct ibv_grh grh;

	memcpy(&grh, e.buf + 4096 * id, sizeof(grh));
	die_unless(wc.qp_num == e.qp[q]->qp_num && wc.src_qp == e.qp[!q]->qp_num && wc.slid == e.me.lid);
	die_unless(wc.byte_len == ROUTE + 64 && filled(e.buf + 4096 * id + ROUTE, 64, (unsigned int)sent));
	die_unless(wc.wc_flags & IBV_WC_GRH && !memcmp(&grh.sgid, &my_gid, 16));
	return wc;
}

static void datagrams_open(const union ibv_gid *to)
{
	struct ibv_ah_attr a = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 1 } };

	end_open_as(&e, 2, SIZE, IBV_QPT_UD);
	end_connect_to(&e, &e.me);
	die_unless(!ibv_query_gid(e.ctx, 1, 0, &my_gid));
	a.dlid = to ? 0xc001 : e.me.lid;
	a.grh.dgid = to ? *to : my_gid;
	die_unless((ah = ibv_create_ah(e.pd, &a)));
	for (uint64_t i = 1; i <= 4; i++)
		die_unless(!post_recv(&e, i != 4, i, 4096 * i, ROUTE + 64));
}

/* Two arrive before the checkpoint; the sender does not ask for a completion. */
static void ud_make(void)
{
	datagrams_open(NULL);
	datagram(ah, 0, e.qp[1]->qp_num, 20, 0);
	datagram(ah, 0, e.qp[1]->qp_num, 21, 0);
	datagram_came(1, 1, 20);
}

/* What the program keeps, number and handle, still leads there; and an answer to what came finds its way back. */
static void ud_check(void)
{
	struct ibv_wc wc = datagram_came(1, 2, 21);
	struct ibv_ah *back;

	expect_empty(e.scq);
	datagram(ah, 0, e.qp[1]->qp_num, 22, IBV_SEND_SIGNALED);
	good_wc(e.scq, 22);
	wc = datagram_came(1, 3, 22);
	die_unless((back = ibv_create_ah_from_wc(e.pd, &wc, (struct ibv_grh *)(e.buf + 4096 * 3), 1)));
	datagram(back, 1, wc.src_qp, 23, IBV_SEND_SIGNALED);
	good_wc(e.scq, 23);
	datagram_came(0, 4, 23);
	datagram(ah, 0, e.qp[1]->qp_num, 24, IBV_SEND_SIGNALED); /* there is no receive: dropped */
	good_wc(e.scq, 24);
	expect_empty(e.rcq);
	die_unless(!ibv_destroy_ah(back) && !ibv_destroy_ah(ah));
}

static void mcast_make(void)
{
	union ibv_gid gid = GROUP;

	datagrams_open(&gid);
	die_unless(!ibv_attach_mcast(e.qp[1], &gid, 0xc001));
}

static void mcast_check(void)
{
	datagram(ah, 0, 0xffffff, 22, IBV_SEND_SIGNALED);
	good_wc(e.scq, 22);
	datagram_came(1, 1, 22);
	expect_empty(e.rcq);
}

static void mcast_unmake(void)
{
	union ibv_gid gid = GROUP;

	die_unless(!ibv_detach_mcast(e.qp[1], &gid, 0xc001));
	datagram(ah, 0, 0xffffff, 23, IBV_SEND_SIGNALED);
	good_wc(e.scq, 23);
	expect_empty(e.rcq);
	die_unless(!ibv_destroy_ah(ah));
}

const struct object datagram_objects[] = {
	{ "UC", NULL, uc_make, uc_check, NULL },
	{ "UD", NULL, ud_make, ud_check, NULL },
	{ "multicast", NULL, mcast_make, mcast_check, mcast_unmake },
	{ 0 },
};
