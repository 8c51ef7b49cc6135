/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each fault of a request, and what both ends see of it: flushing in order, rights of regions, limits. Both ends are in one process, in two contexts.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

/* A bad request from a to b ends both: a's fails with @status, all else is flushed in order. */
static void refused(struct pair *p, struct ibv_send_wr *wr, enum ibv_wc_status status, enum ibv_event_type event)
{
	die_unless(!post_recv(&p->b, 0, 21, 0, 10));
	die_unless(!post_recv(&p->b, 0, 22, 0, 10));
	die_unless(!post_recv(&p->a, 0, 11, 0, 10));
	wr->wr_id = 1;
	die_unless(!post_wr(&p->a, 0, wr));
	die_unless(!post(&p->a, 0, 2, IBV_WR_SEND, 0, 4, 0, 0));
	die_unless(!post(&p->a, 0, 3, IBV_WR_SEND, 0, 4, 0, SIG));
	expect_wc(p->a.scq, 1, status);
	expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->a.rcq, 11, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->b.rcq, 21, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p->b.rcq, 22, IBV_WC_WR_FLUSH_ERR);
	die_unless(qp_state_of(p->a.qp[0]) == IBV_QPS_ERR && qp_state_of(p->b.qp[0]) == IBV_QPS_ERR);
	expect_async(&p->b, event);
	/* posted in error: flushed at once */
	die_unless(!post_recv(&p->b, 0, 23, 0, 10));
	expect_wc(p->b.rcq, 23, IBV_WC_WR_FLUSH_ERR);
	die_unless(!post(&p->b, 0, 24, IBV_WR_SEND, 0, 4, 0, 0));
	expect_wc(p->b.scq, 24, IBV_WC_WR_FLUSH_ERR);
}

static void write_refused(int access, int key_change, size_t to, uint32_t len)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = SIG };

	pair_open_with(&p, SIZE, access, 7);
	memset(p.b.buf, 'k', SIZE);
	s = (struct ibv_sge){ (uintptr_t)p.a.buf, len, p.a.mr->lkey };
	wr.wr.rdma.remote_addr = p.b.me.addr + to;
	wr.wr.rdma.rkey = p.b.me.rkey ^ (uint32_t)key_change;
	refused(&p, &wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	die_unless(p.b.buf[0] == 'k' && p.b.buf[SIZE - 1] == 'k');
	pair_close(&p);
}

static void test_remote_access(void **state)
{
	write_refused(ALL_ACCESS, 1 << 24, 0, 8);	     /* a wrong tag */
	write_refused(ALL_ACCESS, 1, 0, 8);
	write_refused(ALL_ACCESS, 1 << 8, 0, 8);	     /* no such index */
	write_refused(ALL_ACCESS, 0, SIZE - 4, 8);	     /* over the end */
	write_refused(ALL_ACCESS, 0, (size_t)-1, 8);	     /* before the start */
	write_refused(IBV_ACCESS_REMOTE_READ, 0, 0, 8);	     /* the QP forbids it */
}

static void test_region_rights(void **state)
{
	struct pair p;
	struct ibv_mr *ro;

	pair_open(&p, SIZE);
	ro = ibv_reg_mr(p.b.pd, p.b.buf, SIZE, IBV_ACCESS_REMOTE_READ);
	die_unless(ro != NULL);
	p.a.other.rkey = ro->rkey;
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_READ, 0, 100, 0, SIG));
	good_wc(p.a.scq, 1);
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 100, 0, SIG));
	expect_wc(p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	die_unless(!ibv_dereg_mr(ro));
	pair_close(&p);
	/* a region of another protection domain is as good as none */
	pair_open(&p, SIZE);
	{
		struct ibv_pd *pd = ibv_alloc_pd(p.b.ctx);
		struct ibv_mr *mr = ibv_reg_mr(pd, p.b.buf, SIZE, ALL_ACCESS);

		die_unless(ibv_dealloc_pd(pd) == EBUSY);
		p.a.other.rkey = mr->rkey;
		die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_READ, 0, 100, 0, SIG));
		expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
		die_unless(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	}
	pair_close(&p);
	assert_null(ibv_reg_mr((pair_open(&p, SIZE), p.a.pd), NULL, 4096, 0));
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_mr(p.a.pd, p.a.buf, 10, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	pair_close(&p);
}

static void test_atomic_faults(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = SIG };

	pair_open(&p, SIZE);
	s = (struct ibv_sge){ (uintptr_t)p.a.buf, 8, p.a.mr->lkey };
	wr.wr.atomic.remote_addr = p.b.me.addr + 4; /* not aligned */
	wr.wr.atomic.rkey = p.b.me.rkey;
	refused(&p, &wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	pair_close(&p);
	pair_open_with(&p, SIZE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 7);
	s = (struct ibv_sge){ (uintptr_t)p.a.buf, 8, p.a.mr->lkey };
	wr.wr.atomic.remote_addr = p.b.me.addr;
	wr.wr.atomic.rkey = p.b.me.rkey;
	refused(&p, &wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	pair_close(&p);
}

/* A queue pair that was told to answer no READs and no atomics. */
static void test_no_resources(void **state)
{
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	for (int atomic = 0; atomic < 2; atomic++) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .ah_attr = { .port_num = 1 } };
		struct ibv_send_wr wr = { .opcode = atomic ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, .num_sge = 1,
					  .send_flags = SIG };
		struct ibv_sge s = { .length = 8 };
		struct pair p;

		end_open(&p.a, 1, SIZE);
		end_open(&p.b, 1, SIZE);
		end_connect_to(&p.a, &p.b.me);
		p.b.other = p.a.me;
		a.ah_attr.dlid = p.a.me.lid;
		a.dest_qp_num = p.a.me.qpn[0];
		qp_to_init(p.b.qp[0], ALL_ACCESS);
		assert_int_equal(ibv_modify_qp(p.b.qp[0], &a, rtr), 0);
		die_unless(!post(&p.a, 0, 7, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG)); /* that it does */
		good_wc(p.a.scq, 7);
		expect_async(&p.b, IBV_EVENT_COMM_EST);
		s.addr = (uintptr_t)p.a.buf;
		s.lkey = p.a.mr->lkey;
		wr.sg_list = &s;
		if (atomic) {
			wr.wr.atomic.remote_addr = p.b.me.addr;
			wr.wr.atomic.rkey = p.b.me.rkey;
		} else {
			wr.wr.rdma.remote_addr = p.b.me.addr;
			wr.wr.rdma.rkey = p.b.me.rkey;
		}
		wr.wr_id = 8;
		die_unless(!post_wr(&p.a, 0, &wr));
		expect_wc(p.a.scq, 8, IBV_WC_REM_INV_REQ_ERR);
		expect_async(&p.b, IBV_EVENT_QP_REQ_ERR);
		pair_close(&p);
	}
}

/* What is wrong with the requester's own memory is not the responder's business. */
static void test_local_faults(void **state)
{
	struct pair p;

	pair_open(&p, SIZE);
	die_unless(!post_recv(&p.b, 0, 5, 0, 100));
	p.a.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 8, 0, 0));
	p.a.mr->lkey ^= 1 << 24;
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	die_unless(qp_state_of(p.a.qp[0]) == IBV_QPS_ERR && qp_state_of(p.b.qp[0]) == IBV_QPS_RTS);
	expect_empty(p.b.rcq);
	pair_close(&p);
	pair_open(&p, SIZE);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE, SIZE - 4, 8, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}

static void test_receive_faults(void **state)
{
	struct pair p;

	pair_open(&p, SIZE);
	die_unless(!post_recv(&p.b, 0, 5, 0, 10));
	die_unless(!post_recv(&p.b, 0, 6, 0, 10));
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 11, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_LEN_ERR);
	expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	die_unless(qp_state_of(p.b.qp[0]) == IBV_QPS_ERR);
	pair_close(&p);
	pair_open(&p, SIZE);
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 5, 0, 10));
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}

static void test_limits(void **state)
{
	struct pair p;
	struct ibv_sge s[5];
	struct ibv_send_wr wr = { .sg_list = s, .num_sge = 5, .opcode = IBV_WR_SEND, .send_flags = SIG };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET };
	int i;

	pair_open(&p, SIZE);
	for (i = 0; i < 64; i++)
		die_unless(!post_recv(&p.b, 0, 1, 0, 10));
	assert_int_equal(post_recv(&p.b, 0, 1, 0, 10), ENOMEM);
	memset(s, 0, sizeof(s));
	assert_int_equal(post_wr(&p.a, 0, &wr), EINVAL);
	wr.num_sge = 1;
	s[0] = (struct ibv_sge){ (uintptr_t)p.a.buf, 129, 0 };
	wr.send_flags = IBV_SEND_INLINE;
	assert_int_equal(post_wr(&p.a, 0, &wr), EINVAL);
	/* Places are free again when a completion behind them has been polled. */
	for (i = 0; i < 63; i++)
		die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE, 0, 10, 0, 0));
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	assert_int_equal(post(&p.a, 0, 3, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG), ENOMEM);
	good_wc(p.a.scq, 2);
	die_unless(!post(&p.a, 0, 3, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	good_wc(p.a.scq, 3);
	init.send_cq = init.recv_cq = p.a.scq;
	assert_null(ibv_create_qp(p.a.pd, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_destroy_cq(p.a.scq), EBUSY);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remote_access), cmocka_unit_test(test_region_rights),
		cmocka_unit_test(test_atomic_faults), cmocka_unit_test(test_no_resources),
		cmocka_unit_test(test_local_faults), cmocka_unit_test(test_receive_faults),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
