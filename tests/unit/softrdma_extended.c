/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended queues: requests written between wr_start and wr_complete, completions read between start_poll and end_poll. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define ALL_OPS                                                                                                       \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |                       \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |                    \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

/* An end whose queue pair is connected to itself. */
struct xend {
	struct end e;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *x;
};

static void xend_open(struct xend *t, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_cq_init_attr_ex c = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS |
							       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
							       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct ibv_qp_init_attr_ex q = { .qp_type = type, .cap = { .max_send_wr = 8, .max_recv_wr = 8,
								   .max_send_sge = 3, .max_recv_sge = 1,
								   .max_inline_data = 100 },
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = ops };

	end_open(&t->e, 0, SIZE);
	t->cq = ibv_create_cq_ex(t->e.ctx, &c);
	die_unless(t->cq);
	q.pd = t->e.pd;
	q.send_cq = q.recv_cq = ibv_cq_ex_to_cq(t->cq);
	t->qp = ibv_create_qp_ex(t->e.ctx, &q);
	die_unless(t->qp);
	t->x = ibv_qp_to_qp_ex(t->qp);
	die_unless(t->x);
	qp_to_init(t->qp, ALL_ACCESS);
	qp_to_rts(t->qp, t->qp->qp_num, &t->e);
}

static void xend_close(struct xend *t)
{
	die_unless(!ibv_destroy_qp(t->qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)));
	end_close(&t->e);
}

static int xrecv(struct xend *t, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)t->e.buf + off, len, t->e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(t->qp, &wr, &bad);
}

static void begin(struct xend *t, uint64_t id)
{
	t->x->wr_id = id;
	t->x->wr_flags = IBV_SEND_SIGNALED;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void test_requests(void **state)
{
	struct ibv_sge two[2];
	struct ibv_data_buf bufs[2] = { { (void *)"abc", 3 }, { (void *)"defg", 4 } };
	uint64_t at, word = 40;
	struct xend t;

	xend_open(&t, IBV_QPT_RC, ALL_OPS);
	at = t.e.me.addr;
	memcpy(t.e.buf + 1000, &word, 8);
	two[0] = (struct ibv_sge){ at, 10, t.e.mr->lkey };
	two[1] = (struct ibv_sge){ at + 20, 10, t.e.mr->lkey };
	fill(t.e.buf, 30, 1);
	die_unless(!xrecv(&t, 100, 2000, 100) && !xrecv(&t, 101, 3000, 100) && !xrecv(&t, 102, 4000, 100));
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_rdma_write(t.x, t.e.mr->rkey, at + 5000);
	ibv_wr_set_sge_list(t.x, 2, two);
	begin(&t, 2);
	ibv_wr_send_imm(t.x, 77);
	ibv_wr_set_inline_data_list(t.x, 2, bufs);
	begin(&t, 3);
	ibv_wr_atomic_fetch_add(t.x, t.e.mr->rkey, at + 1000, 2);
	ibv_wr_set_sge(t.x, t.e.mr->lkey, at + 1100, 8);
	begin(&t, 4);
	ibv_wr_atomic_cmp_swp(t.x, t.e.mr->rkey, at + 1000, 42, 7);
	ibv_wr_set_sge(t.x, t.e.mr->lkey, at + 1108, 8);
	begin(&t, 5);
	ibv_wr_rdma_write_imm(t.x, t.e.mr->rkey, at + 6000, 78);
	ibv_wr_set_inline_data(t.x, (void *)"xyz", 3);
	begin(&t, 6);
	ibv_wr_rdma_read(t.x, t.e.mr->rkey, at + 5000);
	ibv_wr_set_sge(t.x, t.e.mr->lkey, at + 7000, 20);
	begin(&t, 7);
	ibv_wr_send(t.x);
	ibv_wr_set_sge(t.x, t.e.mr->lkey, at, 30);
	expect_empty(ibv_cq_ex_to_cq(t.cq)); /* nothing yet */
	assert_int_equal(ibv_wr_complete(t.x), 0);
	good_wc(ibv_cq_ex_to_cq(t.cq), 1);
	assert_int_equal(good_wc(ibv_cq_ex_to_cq(t.cq), 100).imm_data, 77);
	good_wc(ibv_cq_ex_to_cq(t.cq), 2);
	good_wc(ibv_cq_ex_to_cq(t.cq), 3);
	good_wc(ibv_cq_ex_to_cq(t.cq), 4);
	assert_int_equal(good_wc(ibv_cq_ex_to_cq(t.cq), 101).imm_data, 78);
	good_wc(ibv_cq_ex_to_cq(t.cq), 5);
	good_wc(ibv_cq_ex_to_cq(t.cq), 6);
	good_wc(ibv_cq_ex_to_cq(t.cq), 102);
	good_wc(ibv_cq_ex_to_cq(t.cq), 7);
	assert_memory_equal(t.e.buf + 5000, t.e.buf, 10);
	assert_memory_equal(t.e.buf + 5010, t.e.buf + 20, 10);
	assert_memory_equal(t.e.buf + 7000, t.e.buf + 5000, 20);
	assert_memory_equal(t.e.buf + 2000, "abcdefg", 7);
	assert_memory_equal(t.e.buf + 6000, "xyz", 3);
	assert_int_equal(t.e.buf[1000], 7);
	assert_int_equal(t.e.buf[1100], 40);
	assert_int_equal(t.e.buf[1108], 42);
	assert_true(filled(t.e.buf + 4000, 30, 1));
	xend_close(&t);
}

static void test_window_requests(void **state)
{
	struct ibv_mw_bind_info info;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct xend t;
	uint32_t key;

	xend_open(&t, IBV_QPT_RC, ALL_OPS);
	mr = ibv_reg_mr(t.e.pd, t.e.buf, SIZE, ALL_ACCESS | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(t.e.pd, IBV_MW_TYPE_2);
	die_unless(mr && mw);
	key = ibv_inc_rkey(mw->rkey);
	info = (struct ibv_mw_bind_info){ mr, t.e.me.addr + 100, 50, IBV_ACCESS_REMOTE_WRITE };
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_bind_mw(t.x, mw, key, &info);
	begin(&t, 2);
	ibv_wr_rdma_write(t.x, key, t.e.me.addr + 100);
	ibv_wr_set_inline_data(t.x, (void *)"window", 6);
	begin(&t, 3);
	ibv_wr_local_inv(t.x, key);
	begin(&t, 4);
	ibv_wr_rdma_write(t.x, key, t.e.me.addr + 100);
	ibv_wr_set_inline_data(t.x, (void *)"closed", 6);
	assert_int_equal(ibv_wr_complete(t.x), 0);
	good_wc(ibv_cq_ex_to_cq(t.cq), 1);
	good_wc(ibv_cq_ex_to_cq(t.cq), 2);
	good_wc(ibv_cq_ex_to_cq(t.cq), 3);
	expect_wc(ibv_cq_ex_to_cq(t.cq), 4, IBV_WC_REM_ACCESS_ERR);
	assert_memory_equal(t.e.buf + 100, "window", 6);
	die_unless(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	xend_close(&t);
}

/* One that is wrong: none is posted. Abort: none either. */
static void test_all_or_none(void **state)
{
	static char big[101];
	struct xend t;
	int i;

	xend_open(&t, IBV_QPT_RC, ALL_OPS);
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_rdma_write(t.x, t.e.mr->rkey, t.e.me.addr);
	ibv_wr_set_inline_data(t.x, (void *)"xyz", 3);
	begin(&t, 2);
	ibv_wr_rdma_write(t.x, t.e.mr->rkey, t.e.me.addr);
	ibv_wr_set_inline_data(t.x, big, sizeof(big));
	assert_int_equal(ibv_wr_complete(t.x), ENOMEM);
	ibv_wr_start(t.x);
	for (i = 0; i < 9; i++) {
		ibv_wr_rdma_write(t.x, t.e.mr->rkey, t.e.me.addr);
		ibv_wr_set_inline_data(t.x, (void *)"xyz", 3);
	}
	assert_int_equal(ibv_wr_complete(t.x), ENOMEM);
	ibv_wr_start(t.x);
	ibv_wr_rdma_write(t.x, t.e.mr->rkey, t.e.me.addr);
	ibv_wr_set_inline_data(t.x, (void *)"xyz", 3);
	ibv_wr_abort(t.x);
	expect_empty(ibv_cq_ex_to_cq(t.cq));
	assert_int_equal(t.e.buf[0], 0);
	xend_close(&t);
}

static void test_reading(void **state)
{
	struct ibv_poll_cq_attr none = { 0 }, bad = { .comp_mask = 1 };
	uint64_t before, after, wall;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct xend t;

	xend_open(&t, IBV_QPT_RC, ALL_OPS);
	assert_int_equal(ibv_start_poll(t.cq, &none), ENOENT);
	assert_int_equal(ibv_start_poll(t.cq, &bad), EINVAL);
	die_unless(!xrecv(&t, 100, 2000, 100));
	before = now_ns(CLOCK_MONOTONIC);
	wall = now_ns(CLOCK_REALTIME);
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_send_imm(t.x, 77);
	ibv_wr_set_inline_data(t.x, (void *)"xyz", 3);
	assert_int_equal(ibv_wr_complete(t.x), 0);
	after = now_ns(CLOCK_MONOTONIC);
	assert_int_equal(ibv_start_poll(t.cq, &none), 0);
	assert_int_equal(t.cq->wr_id, 100);
	assert_int_equal(t.cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(t.cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(t.cq), 3);
	assert_int_equal(ibv_wc_read_imm_data(t.cq), 77);
	assert_int_equal(ibv_wc_read_qp_num(t.cq), t.qp->qp_num);
	assert_int_equal(ibv_wc_read_wc_flags(t.cq), IBV_WC_WITH_IMM);
	assert_int_equal(ibv_wc_read_vendor_err(t.cq), 0);
	assert_in_range(ibv_wc_read_completion_ts(t.cq), before, after);
	assert_in_range(ibv_wc_read_completion_wallclock_ns(t.cq), wall - 1000000, now_ns(CLOCK_REALTIME) + 1000000);
	assert_memory_equal(t.e.buf + 2000, "xyz", 3);
	assert_int_equal(ibv_next_poll(t.cq), 0);
	assert_int_equal(t.cq->wr_id, 1);
	assert_int_equal(ibv_wc_read_opcode(t.cq), IBV_WC_SEND);
	assert_int_equal(ibv_next_poll(t.cq), ENOENT);
	ibv_end_poll(t.cq);
	assert_int_equal(ibv_start_poll(t.cq, &none), ENOENT);
	/* what is taken and not asked on is given back by end_poll */
	die_unless(!xrecv(&t, 101, 2000, 100) && !xrecv(&t, 102, 2000, 100));
	ibv_wr_start(t.x);
	begin(&t, 2);
	t.x->wr_flags = 0;
	ibv_wr_send(t.x);
	ibv_wr_send(t.x);
	assert_int_equal(ibv_wr_complete(t.x), 0);
	assert_int_equal(ibv_start_poll(t.cq, &none), 0);
	assert_int_equal(t.cq->wr_id, 101);
	ibv_end_poll(t.cq);
	good_wc(ibv_cq_ex_to_cq(t.cq), 102);
	assert_int_equal(ibv_query_rt_values_ex(t.e.ctx, &values), 0);
	assert_true((uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec >= after);
	xend_close(&t);
}

static void test_datagrams(void **state)
{
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_ah_attr a = { .port_num = 1, .sl = 2 };
	struct ibv_ah *ah;
	struct xend t;

	xend_open(&t, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	a.dlid = t.e.me.lid;
	ah = ibv_create_ah(t.e.pd, &a);
	die_unless(ah && !xrecv(&t, 100, 0, 100));
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_send_imm(t.x, 5);
	ibv_wr_set_ud_addr(t.x, ah, t.qp->qp_num, END_QKEY);
	ibv_wr_set_inline_data(t.x, (void *)"datagram", 8);
	assert_int_equal(ibv_wr_complete(t.x), 0);
	assert_int_equal(ibv_start_poll(t.cq, &none), 0);
	assert_int_equal(ibv_wc_read_src_qp(t.cq), t.qp->qp_num);
	assert_int_equal(ibv_wc_read_slid(t.cq), t.e.me.lid);
	assert_int_equal(ibv_wc_read_sl(t.cq), 2);
	assert_int_equal(ibv_wc_read_byte_len(t.cq), 48);
	ibv_end_poll(t.cq);
	assert_memory_equal(t.e.buf + 40, "datagram", 8);
	good_wc(ibv_cq_ex_to_cq(t.cq), 1);
	ibv_wr_start(t.x);
	begin(&t, 1);
	ibv_wr_rdma_write(t.x, 0, 0); /* it has none */
	assert_int_equal(ibv_wr_complete(t.x), EINVAL);
	die_unless(!ibv_destroy_ah(ah));
	xend_close(&t);
}

static void test_refusals(void **state)
{
	struct ibv_cq_init_attr_ex c = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	struct ibv_qp_init_attr_ex q = { .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = 8 },
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ };
	struct end e;

	end_open(&e, 1, SIZE);
	assert_null(ibv_create_cq_ex(e.ctx, &c));
	assert_int_equal(errno, EOPNOTSUPP);
	q.pd = e.pd;
	q.send_cq = q.recv_cq = e.scq;
	assert_null(ibv_create_qp_ex(e.ctx, &q));
	assert_int_equal(errno, EOPNOTSUPP);
	q.send_ops_flags = 0;
	q.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	q.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	assert_null(ibv_create_qp_ex(e.ctx, &q));
	assert_null(ibv_qp_to_qp_ex(e.qp[0]));
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),    cmocka_unit_test(test_window_requests),
		cmocka_unit_test(test_all_or_none), cmocka_unit_test(test_reading),
		cmocka_unit_test(test_datagrams),   cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
