/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections and datagrams: what arrives, what is dropped without a word, address handles, the global
 * route header, multicast groups. In one process and between two.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED
#define GRH 40

struct pair {
	struct end a, b;
};

static void pair_open(struct pair *p, enum ibv_qp_type type)
{
	end_open_as(&p->a, 1, SIZE, type);
	end_open_as(&p->b, 1, SIZE, type);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

static void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

/* These tests also run through fermata's plugin. */
static void device_only(void)
{
	if (getenv("OVER_PLUGIN"))
		skip();
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	die_unless(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	die_unless(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* ---- unreliable connections ---- */

static void one_way(struct pair *p, uint32_t len)
{
	struct ibv_wc wc;

	die_unless(!post_recv(&p->b, 0, 1, 0, HALF) && !post_recv(&p->b, 0, 2, 0, HALF));
	fill(p->a.buf, len, 3);
	die_unless(!post(&p->a, 0, 7, IBV_WR_SEND_WITH_IMM, 0, len, 0, SIG));
	wc = good_wc(p->a.scq, 7);
	die_unless(wc.opcode == IBV_WC_SEND);
	wc = good_wc(p->b.rcq, 1);
	die_unless(wc.opcode == IBV_WC_RECV && wc.byte_len == len && wc.imm_data == (7 ^ 0x5a5a));
	die_unless(filled(p->b.buf, len, 3));
	fill(p->a.buf, len, 4);
	die_unless(!post(&p->a, 0, 8, IBV_WR_RDMA_WRITE_WITH_IMM, 0, len, HALF, SIG));
	good_wc(p->a.scq, 8);
	wc = good_wc(p->b.rcq, 2);
	die_unless(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == len);
	die_unless(filled(p->b.buf + HALF, len, 4));
	fill(p->a.buf, len, 5);
	die_unless(!post(&p->a, 0, 9, IBV_WR_RDMA_WRITE, 0, len, HALF, SIG));
	good_wc(p->a.scq, 9);
	die_unless(filled(p->b.buf + HALF, len, 5));
}

static void test_uc_operations(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 64, 65, 4096, 4097, HALF };
	struct pair p;
	size_t i;

	pair_open(&p, IBV_QPT_UC);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		one_way(&p, sizes[i]);
	assert_int_equal(post(&p.a, 0, 1, IBV_WR_RDMA_READ, 0, 8, 0, SIG), EINVAL);
	assert_int_equal(post(&p.a, 0, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 0, SIG), EINVAL);
	pair_close(&p);
}

/* What the other end cannot take is lost, and both go on. */
static void test_uc_drops(void **state)
{
	struct pair p;

	pair_open(&p, IBV_QPT_UC);
	memset(p.b.buf, 'k', SIZE);
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 8, 0, SIG)); /* no receive */
	good_wc(p.a.scq, 1);
	p.a.other.rkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG)); /* wrong key */
	good_wc(p.a.scq, 2);
	die_unless(!post_recv(&p.b, 0, 21, 0, 16));
	die_unless(!post(&p.a, 0, 3, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 8, 0, SIG));
	good_wc(p.a.scq, 3);
	p.a.other.rkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 4, IBV_WR_SEND, 0, 17, 0, SIG)); /* too long */
	good_wc(p.a.scq, 4);
	expect_empty(p.b.rcq);
	die_unless(p.b.buf[0] == 'k');
	/* the receive is still there */
	fill(p.a.buf, 16, 9);
	die_unless(!post(&p.a, 0, 5, IBV_WR_SEND, 0, 16, 0, SIG));
	good_wc(p.a.scq, 5);
	good_wc(p.b.rcq, 21);
	die_unless(filled(p.b.buf, 16, 9));
	assert_int_equal(state_of(p.a.qp[0]), IBV_QPS_RTS);
	assert_int_equal(state_of(p.b.qp[0]), IBV_QPS_RTS);
	/* nobody there */
	to_state(p.b.qp[0], IBV_QPS_RESET);
	die_unless(!post(&p.a, 0, 6, IBV_WR_SEND, 0, 8, 0, SIG));
	good_wc(p.a.scq, 6);
	die_unless(!ibv_destroy_qp(p.b.qp[0]));
	p.b.nqp = 0;
	die_unless(!post(&p.a, 0, 7, IBV_WR_SEND, 0, 8, 0, SIG));
	good_wc(p.a.scq, 7);
	pair_close(&p);
}

/* An own fault stops the send queue alone. */
static void local_fault(enum ibv_qp_type type, struct pair *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };

	expect_wc(p->a.scq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(state_of(p->a.qp[0]), IBV_QPS_SQE);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_modify_qp(p->a.qp[0], &a, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	assert_int_equal(state_of(p->a.qp[0]), IBV_QPS_RTS);
}

static void test_uc_send_error(void **state)
{
	struct pair p;

	pair_open(&p, IBV_QPT_UC);
	p.a.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 8, 0, 0));
	p.a.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 2, IBV_WR_SEND, 0, 8, 0, 0));
	/* it still receives */
	die_unless(!post_recv(&p.a, 0, 11, 0, 100));
	die_unless(!post(&p.b, 0, 12, IBV_WR_SEND, 0, 8, 0, SIG));
	good_wc(p.b.scq, 12);
	good_wc(p.a.rcq, 11);
	local_fault(IBV_QPT_UC, &p);
	one_way(&p, 100);
	pair_close(&p);
}

/* ---- datagrams ---- */

static struct ibv_ah *address(struct end *e, const union ibv_gid *gid)
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

static int send_to(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)e->buf, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &s, .num_sge = 1,
				  .send_flags = SIG, .imm_data = (uint32_t)id };

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return post_wr(e, 0, &wr);
}

static void datagram(struct pair *p, struct ibv_ah *ah, uint32_t len, int global)
{
	struct ibv_wc wc;

	fill(p->a.buf, len, len);
	die_unless(!post_recv(&p->b, 0, 5, 100, len + GRH));
	die_unless(!send_to(&p->a, ah, p->b.me.qpn[0], END_QKEY, 6, len));
	wc = good_wc(p->a.scq, 6);
	wc = good_wc(p->b.rcq, 5);
	die_unless(wc.opcode == IBV_WC_RECV && wc.byte_len == len + GRH && wc.imm_data == 6);
	die_unless(wc.src_qp == p->a.me.qpn[0] && wc.qp_num == p->b.me.qpn[0]);
	die_unless(wc.slid == p->a.me.lid && wc.sl == 3);
	die_unless(wc.wc_flags == (unsigned int)(IBV_WC_WITH_IMM | (global ? IBV_WC_GRH : 0)));
	die_unless(filled(p->b.buf + 100 + GRH, len, len));
}

static void header_check(const char *at, const union ibv_gid *gid, uint32_t len)
{
	struct ibv_grh grh;

	memcpy(&grh, at, sizeof(grh));
	assert_int_equal(ntohl(grh.version_tclass_flow), 6u << 28 | 5 << 20 | 0x12345);
	assert_int_equal(grh.next_hdr, 0x1b);
	assert_int_equal(grh.hop_limit, 17);
	assert_int_equal(ntohs(grh.paylen), len + 12 + 8 + 4 + 4);
	assert_memory_equal(&grh.sgid, gid, 16);
	assert_memory_equal(&grh.dgid, gid, 16);
}

static void test_ud_datagrams(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 24, 25, 64, 1024, 4055, 4056, 4057, 4096 };
	struct ibv_ah *local, *global;
	union ibv_gid gid;
	struct pair p;
	size_t i;

	pair_open(&p, IBV_QPT_UD);
	assert_int_equal(ibv_query_gid(p.a.ctx, 1, 0, &gid), 0);
	local = address(&p.a, NULL);
	global = address(&p.a, &gid);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		datagram(&p, local, sizes[i], 0);
		datagram(&p, global, sizes[i], 1);
	}
	header_check(p.b.buf + 100, &gid, 4096);
	assert_int_equal(ibv_dealloc_pd(p.a.pd), EBUSY);
	die_unless(!ibv_destroy_ah(local) && !ibv_destroy_ah(global));
	pair_close(&p);
}

static void test_ud_drops(void **state)
{
	struct ibv_ah_attr elsewhere = { .dlid = 0, .port_num = 1 };
	struct ibv_ah *ah, *away;
	struct pair p;

	pair_open(&p, IBV_QPT_UD);
	ah = address(&p.a, NULL);
	elsewhere.dlid = (uint16_t)(p.a.me.lid ^ 1);
	away = ibv_create_ah(p.a.pd, &elsewhere);
	die_unless(away);
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], END_QKEY, 1, 10)); /* no receive */
	good_wc(p.a.scq, 1);
	die_unless(!post_recv(&p.b, 0, 5, 0, GRH + 10));
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], END_QKEY ^ 1, 2, 10)); /* wrong key */
	good_wc(p.a.scq, 2);
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], END_QKEY, 3, 11)); /* too long for the receive */
	good_wc(p.a.scq, 3);
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0] ^ 0x800, END_QKEY, 4, 10)); /* no such queue pair */
	good_wc(p.a.scq, 4);
	die_unless(!send_to(&p.a, ah, 0xabcdef, END_QKEY, 4, 10));
	good_wc(p.a.scq, 4);
	die_unless(!send_to(&p.a, away, p.b.me.qpn[0], END_QKEY, 5, 10));
	good_wc(p.a.scq, 5);
	expect_empty(p.b.rcq);
	/* the highest bit of a key: one's own is meant */
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], 0x80000000, 6, 10));
	good_wc(p.a.scq, 6);
	good_wc(p.b.rcq, 5);
	/* longer than the port takes: an error here */
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], END_QKEY, 7, 4097));
	expect_wc(p.a.scq, 7, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(state_of(p.a.qp[0]), IBV_QPS_SQE);
	assert_int_equal(post(&p.b, 0, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG), EINVAL);
	die_unless(!ibv_destroy_ah(ah) && !ibv_destroy_ah(away));
	pair_close(&p);
}

/* A receive whose key is wrong is the receiver's own fault. */
static void test_ud_receive_fault(void **state)
{
	struct ibv_ah *ah;
	struct pair p;

	pair_open(&p, IBV_QPT_UD);
	ah = address(&p.a, NULL);
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 5, 0, 100));
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 6, 0, 100));
	die_unless(!send_to(&p.a, ah, p.b.me.qpn[0], END_QKEY, 1, 10));
	good_wc(p.a.scq, 1);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR);
	expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(p.b.qp[0]), IBV_QPS_ERR);
	die_unless(!ibv_destroy_ah(ah));
	pair_close(&p);
}

/* The answer goes to where the message came from, found in its completion. */
static int answering_child(int sock)
{
	struct ibv_wc wc;
	struct end e;
	int i;

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	for (i = 0; i < 4; i++) {
		struct ibv_ah *ah;

		die_unless(!post_recv(&e, 0, 1, 0, 5000));
		meet(sock);
		wc = good_wc(e.rcq, 1);
		ah = ibv_create_ah_from_wc(e.pd, &wc, (struct ibv_grh *)e.buf, 1);
		die_unless(ah);
		memmove(e.buf, e.buf + GRH, 4096);
		die_unless(!send_to(&e, ah, wc.src_qp, END_QKEY, 2, wc.byte_len - GRH));
		good_wc(e.scq, 2);
		die_unless(!ibv_destroy_ah(ah));
		meet(sock);
	}
	end_close(&e);
	return 0;
}

static void test_ud_answers(void **state)
{
	static const uint32_t sizes[] = { 10, 1000, 4096, 24 };
	struct ibv_ah *ah[2];
	union ibv_gid gid;
	struct end e;
	int sock, i;
	pid_t pid = spawn_end(answering_child, &sock);

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	assert_int_equal(ibv_query_gid(e.ctx, 1, 0, &gid), 0);
	ah[0] = address(&e, NULL);
	ah[1] = address(&e, &gid);
	for (i = 0; i < 4; i++) {
		struct ibv_wc wc;

		meet(sock);
		die_unless(!post_recv(&e, 0, 3, HALF, 5000));
		fill(e.buf, sizes[i], 9);
		die_unless(!send_to(&e, ah[i % 2], e.other.qpn[0], END_QKEY, 4, sizes[i]));
		good_wc(e.scq, 4);
		meet(sock);
		wc = good_wc(e.rcq, 3);
		die_unless(wc.byte_len == sizes[i] + GRH && filled(e.buf + HALF + GRH, sizes[i], 9));
		die_unless(!(wc.wc_flags & IBV_WC_GRH) == !(i % 2));
	}
	die_unless(!ibv_destroy_ah(ah[0]) && !ibv_destroy_ah(ah[1]));
	assert_int_equal(reap(pid), 0);
	end_close(&e);
	close(sock);
}

static void test_ah_faults(void **state)
{
	struct ibv_ah_attr a = { .dlid = 1, .port_num = 2 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .slid = 5 };
	struct ibv_grh grh = { .hop_limit = 1 };
	struct end e;

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	assert_null(ibv_create_ah(e.pd, &a));
	assert_int_equal(errno, EINVAL);
	a = (struct ibv_ah_attr){ .port_num = 1, .is_global = 1, .grh = { .sgid_index = 1 } };
	assert_null(ibv_create_ah(e.pd, &a));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_init_ah_from_wc(e.ctx, 1, &wc, &grh, &a), -1); /* not for one of our GIDs */
	wc.wc_flags = 0;
	assert_int_equal(ibv_init_ah_from_wc(e.ctx, 1, &wc, &grh, &a), 0);
	assert_int_equal(a.dlid, 5);
	assert_int_equal(a.is_global, 0);
	end_close(&e);
}

/* A sender that dies has no hold on who is left. */
static int dying_child(int sock)
{
	struct ibv_ah *ah;
	struct end e;

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	ah = address(&e, NULL);
	while (!send_to(&e, ah, e.other.qpn[0], END_QKEY, 4, 100 + (uint32_t)random() % 3000))
		good_wc(e.scq, 4);
	return 1;
}

static void test_ud_death(void **state)
{
	struct ibv_wc wc;
	int i, n, sock;
	struct end e;

	device_only(); /* long, and shadows have no part in it */
	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	for (i = 0; i < 40; i++) {
		pid_t pid = spawn_end(dying_child, &sock);
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		assert_int_equal(ibv_modify_qp(e.qp[0], &reset, IBV_QP_STATE), 0);
		end_connect(&e, sock);
		for (n = 0; n < 20 + i * 3; n++) {
			die_unless(!post_recv(&e, 0, 5, 0, 5000));
			wc = good_wc(e.rcq, 5);
			die_unless(wc.byte_len >= 140);
		}
		for (n = 0; n < 30; n++)
			die_unless(!post_recv(&e, 0, 5, 0, 5000));
		kill(pid, SIGKILL);
		assert_int_equal(reap(pid), -SIGKILL);
		/* all 30 come back once, in the end */
		reset.qp_state = IBV_QPS_ERR;
		assert_int_equal(ibv_modify_qp(e.qp[0], &reset, IBV_QP_STATE), 0);
		for (n = 0; n < 30; n++)
			die_unless(next_wc(e.rcq).wr_id == 5);
		expect_empty(e.rcq);
		close(sock);
	}
	end_close(&e);
}

/* ---- multicast ---- */

static const union ibv_gid group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 7 } };
static const union ibv_gid other_group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 8 } };
static const union ibv_gid empty_group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 9 } };

static int member_child(int sock)
{
	struct end e;
	int q;

	end_open_as(&e, 3, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	for (q = 0; q < 3; q++)
		die_unless(!post_recv(&e, q, (uint64_t)q, (size_t)q * 8192, 8192));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001)); /* once is enough */
	die_unless(!ibv_attach_mcast(e.qp[2], &group, 0xc001));
	die_unless(!ibv_attach_mcast(e.qp[1], &other_group, 0xc001));
	meet(sock); /* it sends */
	meet(sock);
	good_wc(e.rcq, 0);
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	die_unless(filled(e.buf + GRH, 500, 1) && filled(e.buf + 2 * 8192 + GRH, 500, 1));
	die_unless(!memcmp(e.buf + 24, &group, 16));
	die_unless(ibv_destroy_qp(e.qp[0]) == EBUSY);
	die_unless(!ibv_detach_mcast(e.qp[0], &group, 0xc001));
	die_unless(ibv_detach_mcast(e.qp[0], &group, 0xc001) == EINVAL);
	die_unless(!post_recv(&e, 0, 0, 0, 8192) && !post_recv(&e, 2, 2, 0, 8192));
	meet(sock); /* it sends once more */
	meet(sock);
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	raise(SIGKILL); /* attached */
	return 1;
}

static void test_multicast(void **state)
{
	struct ibv_ah *ah, *nobody;
	struct end e;
	int sock, i;
	pid_t pid = spawn_end(member_child, &sock);

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	ah = address(&e, &group);
	nobody = address(&e, &empty_group);
	die_unless(!send_to(&e, nobody, 0xffffff, END_QKEY, 1, 500));
	good_wc(e.scq, 1);
	die_unless(!ibv_destroy_ah(nobody));
	meet(sock);
	fill(e.buf, 500, 1);
	die_unless(!post_recv(&e, 0, 9, HALF, 8192));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001));
	for (i = 0; i < 2; i++) {
		die_unless(!send_to(&e, ah, 0xffffff, END_QKEY, 2, 500));
		good_wc(e.scq, 2);
		if (!i) /* its own copy */
			good_wc(e.rcq, 9);
		meet(sock);
		if (!i)
			meet(sock);
	}
	assert_int_equal(reap(pid), -SIGKILL);
	die_unless(!post_recv(&e, 0, 9, HALF, 8192));
	die_unless(!send_to(&e, ah, 0xffffff, END_QKEY, 2, 500));
	good_wc(e.scq, 2);
	good_wc(e.rcq, 9);
	die_unless(!ibv_detach_mcast(e.qp[0], &group, 0));
	assert_int_equal(ibv_attach_mcast(e.qp[0], (union ibv_gid *)e.buf, 0), EINVAL); /* no group's GID */
	die_unless(!ibv_destroy_ah(ah));
	end_close(&e);
	close(sock);
	end_open(&e, 1, SIZE);
	assert_int_equal(ibv_attach_mcast(e.qp[0], &group, 0), EINVAL); /* not a datagram queue pair */
	end_close(&e);
}

/* A queue pair that does not want its own context to hear it. */
static void test_block_self(void **state)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = 4, .max_send_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
					    .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB };
	struct ibv_qp *first;
	struct ibv_ah *ah;
	struct end a, b;

	device_only(); /* fermata has no extended queue pairs yet */
	end_open_as(&a, 1, SIZE, IBV_QPT_UD);
	end_open_as(&b, 1, SIZE, IBV_QPT_UD);
	end_connect_to(&b, &a.me);
	init.pd = a.pd;
	init.send_cq = a.scq;
	init.recv_cq = a.rcq;
	first = a.qp[0];
	qp_to_init(first, 0);
	qp_to_rts(first, 0, &a);
	die_unless(!ibv_attach_mcast(first, &group, 0) && !ibv_attach_mcast(b.qp[0], &group, 0));
	die_unless(!post_recv(&a, 0, 1, 0, 4096) && !post_recv(&b, 0, 2, 0, 4096));
	a.qp[0] = ibv_create_qp_ex(a.ctx, &init);
	die_unless(a.qp[0]);
	qp_to_init(a.qp[0], 0);
	qp_to_rts(a.qp[0], 0, &a);
	ah = address(&a, &group);
	die_unless(!send_to(&a, ah, 0xffffff, END_QKEY, 3, 10));
	good_wc(a.scq, 3);
	good_wc(b.rcq, 2);
	expect_empty(a.rcq);
	die_unless(!ibv_detach_mcast(first, &group, 0) && !ibv_detach_mcast(b.qp[0], &group, 0));
	die_unless(!ibv_destroy_ah(ah) && !ibv_destroy_qp(first));
	end_close(&a);
	end_close(&b);
}

/* More groups than there is room for, again and again, by those who die: their slots come back. */
static int hoarder(int sock)
{
	union ibv_gid gid = group;
	struct end e;
	int i, got = 0;

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	for (i = 0; i < 300; i++) {
		gid.raw[14] = (uint8_t)(i >> 8);
		gid.raw[13] = (uint8_t)i;
		got += !ibv_attach_mcast(e.qp[0], &gid, 0);
	}
	die_unless(got == 256);
	raise(SIGKILL);
	return 1;
}

static void test_groups_of_the_dead(void **state)
{
	int i, sock;

	for (i = 0; i < 3; i++) {
		pid_t pid = spawn_end(hoarder, &sock);

		assert_int_equal(reap(pid), -SIGKILL);
		close(sock);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uc_operations),	 cmocka_unit_test(test_uc_drops),
		cmocka_unit_test(test_uc_send_error),	 cmocka_unit_test(test_ud_datagrams),
		cmocka_unit_test(test_ud_drops),	 cmocka_unit_test(test_ud_receive_fault),
		cmocka_unit_test(test_ud_answers),	 cmocka_unit_test(test_ah_faults),
		cmocka_unit_test(test_ud_death),	 cmocka_unit_test(test_multicast),
		cmocka_unit_test(test_block_self),	 cmocka_unit_test(test_groups_of_the_dead),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
