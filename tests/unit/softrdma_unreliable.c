/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections: what arrives, what is dropped without a word, and that an own fault stops the send queue alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	die_unless(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

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

	pair_open_as(&p, IBV_QPT_UC, SIZE);
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

	pair_open_as(&p, IBV_QPT_UC, SIZE);
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
	assert_int_equal(qp_state_of(p.a.qp[0]), IBV_QPS_RTS);
	assert_int_equal(qp_state_of(p.b.qp[0]), IBV_QPS_RTS);
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
	assert_int_equal(qp_state_of(p->a.qp[0]), IBV_QPS_SQE);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_modify_qp(p->a.qp[0], &a, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	assert_int_equal(qp_state_of(p->a.qp[0]), IBV_QPS_RTS);
}

static void test_uc_send_error(void **state)
{
	struct pair p;

	pair_open_as(&p, IBV_QPT_UC, SIZE);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uc_operations), cmocka_unit_test(test_uc_drops),
		cmocka_unit_test(test_uc_send_error),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
