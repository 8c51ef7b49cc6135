/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions that change, windows of both types, addresses from 0, memory on demand, device memory, domains: what is
 * let in, and what is not any more.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct pair {
	struct end a, b;
};

static void pair_open(struct pair *p)
{
	end_open(&p->a, 2, SIZE);
	end_open(&p->b, 2, SIZE);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

static void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

/* What a 8-byte write from a, by queue pair @q, with this key and address gives; after a fault both are made anew. */
static enum ibv_wc_status write_by(struct pair *p, int q, uint32_t rkey, uint64_t addr)
{
	struct ibv_sge s = { (uintptr_t)p->a.buf, 8, p->a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &s, .num_sge = 1,
				  .send_flags = SIG };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;

	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = addr;
	die_unless(!post_wr(&p->a, q, &wr));
	wc = next_wc(p->a.scq);
	if (wc.status) {
		die_unless(!ibv_modify_qp(p->a.qp[q], &reset, IBV_QP_STATE));
		die_unless(!ibv_modify_qp(p->b.qp[q], &reset, IBV_QP_STATE));
		qp_to_init(p->a.qp[q], ALL_ACCESS);
		qp_to_init(p->b.qp[q], ALL_ACCESS);
		qp_to_rts(p->a.qp[q], p->b.me.qpn[q], &p->a);
		qp_to_rts(p->b.qp[q], p->a.me.qpn[q], &p->b);
	}
	return wc.status;
}

static void test_rereg(void **state)
{
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	uint64_t at, half;

	pair_open(&p);
	at = (uintptr_t)p.b.buf;
	half = at + SIZE / 2;
	pd = ibv_alloc_pd(p.b.ctx);
	mr = ibv_reg_mr(p.b.pd, p.b.buf, 100, ALL_ACCESS);
	die_unless(mr && pd);
	assert_int_equal(write_by(&p, 0, mr->rkey, at), IBV_WC_SUCCESS);
	/* rights */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(write_by(&p, 0, mr->rkey, at), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EINVAL);
	/* place, with rights */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				      p.b.buf + SIZE / 2, 50, ALL_ACCESS), 0);
	assert_int_equal(mr->length, 50);
	assert_ptr_equal(mr->addr, p.b.buf + SIZE / 2);
	assert_int_equal(write_by(&p, 0, mr->rkey, half + 42), IBV_WC_SUCCESS);
	assert_int_equal(write_by(&p, 0, mr->rkey, half + 43), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(write_by(&p, 0, mr->rkey, at), IBV_WC_REM_ACCESS_ERR);
	/* place alone */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p.b.buf, 100, 0), 0);
	assert_int_equal(write_by(&p, 0, mr->rkey, at), IBV_WC_SUCCESS);
	/* domain, and all three */
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, pd);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(write_by(&p, 0, mr->rkey, at), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, p.b.pd, p.b.buf + 8, 16, ALL_ACCESS), 0);
	assert_int_equal(write_by(&p, 0, mr->rkey, at + 16), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	/* nonsense */
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 10, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(write_by(&p, 0, mr->rkey, at + 16), IBV_WC_SUCCESS);
	die_unless(!ibv_dereg_mr(mr));
	pair_close(&p);
}

static void bind_1(struct pair *p, int q, struct ibv_mw *mw, struct ibv_mr *mr, void *addr, uint64_t len,
		   unsigned int access)
{
	struct ibv_mw_bind b = { .wr_id = 77, .send_flags = SIG,
				 .bind_info = { .mr = mr, .addr = (uintptr_t)addr, .length = len,
						.mw_access_flags = access } };

	die_unless(!ibv_bind_mw(p->b.qp[q], mw, &b));
	die_unless(good_wc(p->b.scq, 77).opcode == IBV_WC_BIND_MW);
}

static void test_window_type_1(void **state)
{
	struct pair p;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	uint32_t first;
	uint64_t at;

	pair_open(&p);
	at = (uintptr_t)p.b.buf;
	mr = ibv_reg_mr(p.b.pd, p.b.buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1);
	die_unless(mr && mw);
	assert_int_equal(write_by(&p, 0, mw->rkey, at), IBV_WC_REM_ACCESS_ERR); /* not bound yet */
	bind_1(&p, 0, mw, mr, p.b.buf + 100, 50, REMOTE);
	first = mw->rkey;
	assert_int_equal(write_by(&p, 0, mw->rkey, at + 100), IBV_WC_SUCCESS);
	assert_int_equal(write_by(&p, 1, mw->rkey, at + 142), IBV_WC_SUCCESS); /* any queue pair */
	assert_int_equal(write_by(&p, 0, mw->rkey, at + 143), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(write_by(&p, 0, mw->rkey, at + 99), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	/* another binding: another key, and the old one is dead */
	bind_1(&p, 1, mw, mr, p.b.buf, 50, IBV_ACCESS_REMOTE_READ);
	assert_int_not_equal(mw->rkey, first);
	assert_int_equal(write_by(&p, 0, first, at + 100), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(write_by(&p, 0, mw->rkey, at), IBV_WC_REM_ACCESS_ERR); /* it may be read only */
	bind_1(&p, 0, mw, mr, p.b.buf, 50, REMOTE);
	/* as a local key it is none */
	{
		struct ibv_sge s = { at, 8, mw->rkey };
		struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_RDMA_READ, .sg_list = &s, .num_sge = 1 };

		die_unless(!post_wr(&p.b, 1, &wr));
		expect_wc(p.b.scq, 5, IBV_WC_LOC_PROT_ERR);
	}
	/* no length: no binding */
	bind_1(&p, 0, mw, NULL, NULL, 0, 0);
	assert_int_equal(write_by(&p, 0, mw->rkey, at), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}

static struct ibv_send_wr bind_2(struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr, uint64_t addr, uint64_t len,
				 unsigned int access)
{
	struct ibv_send_wr wr = { .wr_id = 88, .opcode = IBV_WR_BIND_MW, .send_flags = SIG };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, addr, len, access };
	return wr;
}

static void test_window_type_2(void **state)
{
	struct ibv_send_wr wr;
	struct pair p;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	uint32_t key;
	uint64_t at;

	pair_open(&p);
	at = (uintptr_t)p.b.buf;
	mr = ibv_reg_mr(p.b.pd, p.b.buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
	die_unless(mr && mw);
	key = ibv_inc_rkey(mw->rkey);
	wr = bind_2(mw, key ^ 1 << 8, mr, at, 100, REMOTE);
	assert_int_equal(post_wr(&p.b, 0, &wr), EINVAL); /* only the lowest byte is the binder's */
	wr = bind_2(mw, key, mr, at, 100, REMOTE);
	die_unless(!post_wr(&p.b, 0, &wr));
	die_unless(good_wc(p.b.scq, 88).opcode == IBV_WC_BIND_MW);
	assert_int_equal(write_by(&p, 0, key, at), IBV_WC_SUCCESS);
	assert_int_equal(write_by(&p, 1, key, at), IBV_WC_REM_ACCESS_ERR); /* another queue pair */
	/* local invalidation */
	wr = (struct ibv_send_wr){ .wr_id = 89, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key, .send_flags = SIG };
	die_unless(!post_wr(&p.b, 0, &wr));
	die_unless(good_wc(p.b.scq, 89).opcode == IBV_WC_LOCAL_INV);
	assert_int_equal(write_by(&p, 0, key, at), IBV_WC_REM_ACCESS_ERR);
	/* bound again, from 0 on; ended by the other side */
	key = ibv_inc_rkey(key);
	wr = bind_2(mw, key, mr, at + 1000, 100, REMOTE | IBV_ACCESS_ZERO_BASED);
	die_unless(!post_wr(&p.b, 0, &wr));
	good_wc(p.b.scq, 88);
	p.b.buf[1092] = 'x';
	p.a.buf[0] = 'y';
	assert_int_equal(write_by(&p, 0, key, 92), IBV_WC_SUCCESS);
	assert_int_equal(p.b.buf[1092], 'y');
	die_unless(!post_recv(&p.b, 0, 11, 0, 10));
	wr = (struct ibv_send_wr){ .wr_id = 90, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key,
				   .send_flags = SIG };
	die_unless(!post_wr(&p.a, 0, &wr));
	good_wc(p.a.scq, 90);
	{
		struct ibv_wc wc = good_wc(p.b.rcq, 11);

		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, key);
	}
	assert_int_equal(write_by(&p, 0, key, 92), IBV_WC_REM_ACCESS_ERR);
	die_unless(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	pair_close(&p);
}

/* Each bad bind or invalidation ends the queue pair that asked for it. */
static void bad_request(struct ibv_send_wr (*make)(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr),
			enum ibv_wc_status status)
{
	struct ibv_send_wr wr;
	struct pair p;
	struct ibv_mw *mw;
	struct ibv_mr *mr;

	pair_open(&p);
	mr = ibv_reg_mr(p.b.pd, p.b.buf, 100, IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
	die_unless(mr && mw);
	wr = make(&p, mw, mr);
	die_unless(!post_wr(&p.b, 0, &wr));
	expect_wc(p.b.scq, wr.wr_id, status);
	die_unless(!post(&p.b, 0, 9, IBV_WR_RDMA_WRITE, 0, 8, 0, 0));
	expect_wc(p.b.scq, 9, IBV_WC_WR_FLUSH_ERR);
	die_unless(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	pair_close(&p);
}

static struct ibv_send_wr too_long(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	return bind_2(mw, mw->rkey, mr, (uintptr_t)p->b.buf + 1, 100, IBV_ACCESS_REMOTE_READ);
}

static struct ibv_send_wr not_writable(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	return bind_2(mw, mw->rkey, mr, (uintptr_t)p->b.buf, 100, REMOTE);
}

static struct ibv_send_wr not_for_windows(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	return bind_2(mw, mw->rkey, p->b.mr, (uintptr_t)p->b.buf, 100, IBV_ACCESS_REMOTE_READ);
}

static struct ibv_send_wr twice(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = bind_2(mw, mw->rkey, mr, (uintptr_t)p->b.buf, 100, IBV_ACCESS_REMOTE_READ);

	die_unless(!post_wr(&p->b, 0, &wr));
	good_wc(p->b.scq, 88);
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	return wr;
}

static struct ibv_send_wr not_bound(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	return (struct ibv_send_wr){ .wr_id = 3, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey };
}

static struct ibv_send_wr a_region(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr)
{
	return (struct ibv_send_wr){ .wr_id = 3, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mr->rkey };
}

static void test_window_faults(void **state)
{
	struct ibv_send_wr wr;
	struct pair p;
	struct ibv_mw *mw;

	bad_request(too_long, IBV_WC_MW_BIND_ERR);
	bad_request(not_writable, IBV_WC_MW_BIND_ERR);
	bad_request(not_for_windows, IBV_WC_MW_BIND_ERR);
	bad_request(twice, IBV_WC_MW_BIND_ERR);
	bad_request(not_bound, IBV_WC_LOC_QP_OP_ERR);
	bad_request(a_region, IBV_WC_LOC_QP_OP_ERR);
	pair_open(&p);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1);
	wr = bind_2(mw, mw->rkey, p.b.mr, (uintptr_t)p.b.buf, 8, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(post_wr(&p.b, 0, &wr), EINVAL); /* type 1 is not bound by a request */
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	/* a remote invalidation of what is none ends both */
	die_unless(!post_recv(&p.b, 0, 11, 0, 10));
	wr = (struct ibv_send_wr){ .wr_id = 4, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = p.b.mr->rkey };
	die_unless(!post_wr(&p.a, 0, &wr));
	expect_wc(p.a.scq, 4, IBV_WC_REM_OP_ERR);
	expect_wc(p.b.rcq, 11, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(write_by(&p, 1, p.b.mr->rkey, p.b.me.addr), IBV_WC_SUCCESS);
	pair_close(&p);
}

static void test_zero_based_and_on_demand(void **state)
{
	struct ibv_mr *zero, *all, *iova;
	struct pair p;
	uint64_t at;

	pair_open(&p);
	at = (uintptr_t)p.b.buf;
	zero = ibv_reg_mr(p.b.pd, p.b.buf + 500, 100, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	all = ibv_reg_mr(p.b.pd, NULL, SIZE_MAX, ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	iova = ibv_reg_mr_iova2(p.b.pd, p.b.buf + 500, 100, 0x123456789000, ALL_ACCESS);
	die_unless(zero && all && iova);
	p.a.buf[0] = 'a';
	assert_int_equal(write_by(&p, 0, zero->rkey, 92), IBV_WC_SUCCESS);
	assert_int_equal(p.b.buf[592], 'a');
	assert_int_equal(write_by(&p, 0, zero->rkey, 93), IBV_WC_REM_ACCESS_ERR);
	p.a.buf[0] = 'b';
	assert_int_equal(write_by(&p, 0, iova->rkey, 0x123456789000), IBV_WC_SUCCESS);
	assert_int_equal(p.b.buf[500], 'b');
	assert_int_equal(write_by(&p, 0, all->rkey, at + 7), IBV_WC_SUCCESS);
	assert_int_equal(p.b.buf[7], 'b');
	die_unless(!ibv_dereg_mr(zero) && !ibv_dereg_mr(all) && !ibv_dereg_mr(iova));
	pair_close(&p);
}

static void test_device_memory(void **state)
{
	struct ibv_alloc_dm_attr attr = { .length = 10000 };
	char got[16] = { 0 };
	struct pair p;
	struct ibv_dm *dm;
	struct ibv_mr *mr;

	pair_open(&p);
	dm = ibv_alloc_dm(p.b.ctx, &attr);
	die_unless(dm);
	assert_null(ibv_reg_dm_mr(p.b.pd, dm, 0, 100, ALL_ACCESS)); /* it begins at 0 */
	assert_null(ibv_reg_dm_mr(p.b.pd, dm, 9000, 1001, ALL_ACCESS | IBV_ACCESS_ZERO_BASED));
	mr = ibv_reg_dm_mr(p.b.pd, dm, 1000, 100, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	die_unless(mr);
	memcpy(p.a.buf, "12345678", 8);
	assert_int_equal(write_by(&p, 0, mr->rkey, 20), IBV_WC_SUCCESS);
	assert_int_equal(ibv_memcpy_from_dm(got, dm, 1020, 8), 0);
	assert_memory_equal(got, "12345678", 8);
	assert_int_equal(ibv_memcpy_to_dm(dm, 9996, "abcd", 4), 0);
	assert_int_not_equal(ibv_memcpy_to_dm(dm, 9996, "abcdefgh", 8), 0);
	assert_int_not_equal(ibv_memcpy_to_dm(dm, 1, "abcd", 4), 0);
	assert_int_not_equal(ibv_memcpy_from_dm(got, dm, 20000, 4), 0);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	die_unless(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	attr.length = 1ull << 40;
	assert_null(ibv_alloc_dm(p.b.ctx, &attr));
	pair_close(&p);
}

static void test_domains(void **state)
{
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct pair p;

	pair_open(&p);
	assert_null(ibv_alloc_parent_domain(p.b.ctx, &attr));
	td = ibv_alloc_td(p.b.ctx, &td_attr);
	attr.pd = p.b.pd;
	attr.td = td;
	pd = ibv_alloc_parent_domain(p.b.ctx, &attr);
	die_unless(td && pd);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	/* it is the domain in it */
	mr = ibv_reg_mr(pd, p.b.buf, 100, ALL_ACCESS);
	die_unless(mr);
	assert_int_equal(write_by(&p, 0, mr->rkey, p.b.me.addr), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	die_unless(!ibv_dereg_mr(mr));
	die_unless(!ibv_dealloc_pd(pd) && !ibv_dealloc_td(td));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rereg),	     cmocka_unit_test(test_window_type_1),
		cmocka_unit_test(test_window_type_2), cmocka_unit_test(test_window_faults),
		cmocka_unit_test(test_zero_based_and_on_demand), cmocka_unit_test(test_device_memory),
		cmocka_unit_test(test_domains),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
