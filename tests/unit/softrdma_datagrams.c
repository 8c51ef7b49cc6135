/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams: what arrives, what is dropped without a word, address handles, the global route header. In one process and between two.
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

#include "softrdma_datagram.h"
#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED

static void datagram(struct pair *p, struct ibv_ah *ah, uint32_t len, int global)
{
	struct ibv_wc wc;

	fill(p->a.buf, len, len);
	die_unless(!post_recv(&p->b, 0, 5, 100, len + GRH));
	die_unless(!datagram_post(&p->a, ah, p->b.me.qpn[0], END_QKEY, 6, len));
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

	pair_open_as(&p, IBV_QPT_UD, SIZE);
	assert_int_equal(ibv_query_gid(p.a.ctx, 1, 0, &gid), 0);
	local = datagram_address(&p.a, NULL);
	global = datagram_address(&p.a, &gid);
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

	pair_open_as(&p, IBV_QPT_UD, SIZE);
	ah = datagram_address(&p.a, NULL);
	elsewhere.dlid = (uint16_t)(p.a.me.lid ^ 1);
	away = ibv_create_ah(p.a.pd, &elsewhere);
	die_unless(away);
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], END_QKEY, 1, 10)); /* no receive */
	good_wc(p.a.scq, 1);
	die_unless(!post_recv(&p.b, 0, 5, 0, GRH + 10));
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], END_QKEY ^ 1, 2, 10)); /* wrong key */
	good_wc(p.a.scq, 2);
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], END_QKEY, 3, 11)); /* too long for the receive */
	good_wc(p.a.scq, 3);
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0] ^ 0x800, END_QKEY, 4, 10)); /* no such queue pair */
	good_wc(p.a.scq, 4);
	die_unless(!datagram_post(&p.a, ah, 0xabcdef, END_QKEY, 4, 10));
	good_wc(p.a.scq, 4);
	die_unless(!datagram_post(&p.a, away, p.b.me.qpn[0], END_QKEY, 5, 10));
	good_wc(p.a.scq, 5);
	expect_empty(p.b.rcq);
	/* the highest bit of a key: one's own is meant */
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], 0x80000000, 6, 10));
	good_wc(p.a.scq, 6);
	good_wc(p.b.rcq, 5);
	/* longer than the port takes: an error here */
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], END_QKEY, 7, 4097));
	expect_wc(p.a.scq, 7, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(qp_state_of(p.a.qp[0]), IBV_QPS_SQE);
	assert_int_equal(post(&p.b, 0, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG), EINVAL);
	die_unless(!ibv_destroy_ah(ah) && !ibv_destroy_ah(away));
	pair_close(&p);
}

/* A receive whose key is wrong is the receiver's own fault. */
static void test_ud_receive_fault(void **state)
{
	struct ibv_ah *ah;
	struct pair p;

	pair_open_as(&p, IBV_QPT_UD, SIZE);
	ah = datagram_address(&p.a, NULL);
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 5, 0, 100));
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 6, 0, 100));
	die_unless(!datagram_post(&p.a, ah, p.b.me.qpn[0], END_QKEY, 1, 10));
	good_wc(p.a.scq, 1);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR);
	expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state_of(p.b.qp[0]), IBV_QPS_ERR);
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
		die_unless(!datagram_post(&e, ah, wc.src_qp, END_QKEY, 2, wc.byte_len - GRH));
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
	ah[0] = datagram_address(&e, NULL);
	ah[1] = datagram_address(&e, &gid);
	for (i = 0; i < 4; i++) {
		struct ibv_wc wc;

		meet(sock);
		die_unless(!post_recv(&e, 0, 3, HALF, 5000));
		fill(e.buf, sizes[i], 9);
		die_unless(!datagram_post(&e, ah[i % 2], e.other.qpn[0], END_QKEY, 4, sizes[i]));
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
	ah = datagram_address(&e, NULL);
	while (!datagram_post(&e, ah, e.other.qpn[0], END_QKEY, 4, 100 + (uint32_t)random() % 3000))
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ud_datagrams), cmocka_unit_test(test_ud_drops),
		cmocka_unit_test(test_ud_receive_fault), cmocka_unit_test(test_ud_answers),
		cmocka_unit_test(test_ah_faults), cmocka_unit_test(test_ud_death),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
