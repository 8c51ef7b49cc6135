/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows. Each queue pair is connected to itself; queue pair i uses the 4 KiB at i * 4096 of the second half, which window i shows. What a window
 * refuses ends the queue pair that asks, so that is asked last.
 */
#include "verbs_objects.h"

#include <errno.h>
#include <string.h>

#define QPS 6
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED
#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct ibv_mw *mw[QPS];
static struct ibv_mr *mr;
static uint32_t key[QPS], old[QPS];

static void windows_open(enum ibv_mw_type type)
{
	end_open(&e, QPS, SIZE);
	die_unless((mr = ibv_reg_mr(e.pd, e.buf + HALF, HALF, ALL_ACCESS | IBV_ACCESS_MW_BIND)));
	end_connect_to(&e, &e.me);
	for (int i = 0; i < QPS; i++) {
		die_unless((mw[i] = ibv_alloc_mw(e.pd, type)));
		key[i] = mw[i]->rkey;
	}
}

static void windows_close(void)
{
	for (int i = 0; i < QPS; i++)
		die_unless(!mw[i] || !ibv_dealloc_mw(mw[i]));
	for (int i = 0; i < e.nqp; i++)
		die_unless(!ibv_destroy_qp(e.qp[i]));
	e.nqp = 0;
	die_unless(!ibv_dereg_mr(mr));
}

static struct ibv_mw_bind_info part(int i, uint64_t length)
{
	return (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)e.buf + HALF + (uint64_t)i * 4096, .length = length,
					  .mw_access_flags = RIGHTS };
}

/* Type 1. */
static void bind_window(int i, int q, uint64_t length, unsigned int flags)
{
	struct ibv_mw_bind b = { .wr_id = 100 + (uint64_t)i, .send_flags = flags, .bind_info = part(i, length) };

	old[i] = key[i];
	die_unless(!ibv_bind_mw(e.qp[q], mw[i], &b));
	key[i] = mw[i]->rkey;
	die_unless(key[i] != old[i] && key[i] >> 8 == old[i] >> 8);
}

/* Type 2; window i, by queue pair i. */
static void bind_by_post(int i, unsigned int flags)
{
	struct ibv_send_wr wr = { .wr_id = 100 + (uint64_t)i, .opcode = IBV_WR_BIND_MW, .send_flags = flags };

	old[i] = key[i];
	key[i] = ibv_inc_rkey(key[i]);
	wr.bind_mw.mw = mw[i];
	wr.bind_mw.rkey = key[i];
	wr.bind_mw.bind_info = part(i, 4096);
	die_unless(!post_wr(&e, i, &wr));
	mw[i]->rkey = key[i]; /* as programs do */
}

static void invalidate_here(int i, unsigned int flags)
{
	struct ibv_send_wr wr = { .wr_id = 200 + (uint64_t)i, .opcode = IBV_WR_LOCAL_INV, .send_flags = flags, .invalidate_rkey = key[i] };

	die_unless(!post_wr(&e, i, &wr));
}

/* The peer's, which we are. */
static void invalidate_there(int i)
{
	struct ibv_send_wr wr = { .wr_id = 300 + (uint64_t)i, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = SIG, .invalidate_rkey = key[i] };
	struct ibv_wc wc;

	die_unless(!post_recv(&e, i, 400 + (uint64_t)i, 0, 64) && !post_wr(&e, i, &wr));
	wc = good_wc(e.rcq, 400 + (uint64_t)i);
	die_unless(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key[i]);
}

static void write_by(int i, int q, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)e.buf, 64, e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = SIG };

	wr.wr.rdma.remote_addr = (uintptr_t)e.buf + HALF + (uint64_t)i * 4096 + 128;
	wr.wr.rdma.rkey = rkey;
	fill(e.buf, 64, (unsigned int)i + 1);
	die_unless(!post_wr(&e, q, &wr));
}

static void shows(int i, int q)
{
	char *at = e.buf + HALF + i * 4096 + 128;

	memset(at, 0, 64);
	write_by(i, q, key[i]);
	good_wc(e.scq, 5);
	die_unless(filled(at, 64, (unsigned int)i + 1));
}

static void refuses(int i, int q, uint32_t rkey)
{
	write_by(i, q, rkey);
	expect_wc(e.scq, 5, IBV_WC_REM_ACCESS_ERR);
}

/* ---- type 1 ---- */

/* Bound and polled; bound twice; bound and never told; unbound by a binding of no length; never bound. */
static void bound_make(void)
{
	windows_open(IBV_MW_TYPE_1);
	bind_window(0, 5, 4096, SIG);
	good_wc(e.scq, 100);
	bind_window(1, 5, 4096, 0);
	bind_window(1, 4, 4096, SIG);
	good_wc(e.scq, 101);
	bind_window(3, 5, 4096, SIG);
	good_wc(e.scq, 103);
	bind_window(3, 5, 0, 0);
	bind_window(2, 5, 4096, 0);
}

static void bound_check(void)
{
	expect_empty(e.scq);
	for (int i = 0; i < 3; i++) {
		die_unless(mw[i]->rkey == key[i]);
		shows(i, 0);
	}
	bind_window(0, 3, 4096, SIG);
	good_wc(e.scq, 100);
	shows(0, 5);
	bind_window(4, 3, 4096, 0);
	shows(4, 5);
	refuses(0, 0, old[0]);
	refuses(1, 1, old[1]);
	refuses(3, 2, key[3]);
	refuses(3, 3, old[3]);
	refuses(5, 4, key[5]);
}

/* ---- type 2 ---- */

/* Bound; invalidated here, told and not; there; there before the binding's completion is polled; twice bound. */
static void own_make(void)
{
	windows_open(IBV_MW_TYPE_2);
	for (int i = 0; i < QPS; i++)
		bind_by_post(i, i == 0 || i == 4 ? SIG : 0);
	invalidate_here(1, SIG);
	good_wc(e.scq, 100);
	good_wc(e.scq, 104);
	good_wc(e.scq, 201);
	invalidate_here(2, 0);
	invalidate_there(3); /* and what is told here is not polled yet */
	invalidate_there(4);
	bind_by_post(4, 0);
	good_wc(e.scq, 303);
	good_wc(e.scq, 304);
}

static void own_check(void)
{
	expect_empty(e.scq);
	expect_empty(e.rcq);
	shows(0, 0);
	shows(4, 4);
	shows(5, 5);
	invalidate_there(0);
	good_wc(e.scq, 300);
	invalidate_here(4, 0);
	bind_by_post(0, 0);
	bind_by_post(1, SIG);
	good_wc(e.scq, 101);
	shows(0, 0);
	shows(1, 1);
	refuses(0, 0, old[0]);
	refuses(2, 2, key[2]);
	refuses(3, 3, key[3]);
	refuses(4, 4, key[4]);
	refuses(0, 5, key[0]); /* another's */
}

/* What was invalidated by a peer and is polled, of a binding that is not. */
static void turns_make(void)
{
	windows_open(IBV_MW_TYPE_2);
	bind_by_post(0, SIG);
	invalidate_there(0);
	bind_by_post(1, SIG);
	invalidate_there(1);
	bind_by_post(1, SIG);
}

static void turns_check(void)
{
	good_wc(e.scq, 100);
	good_wc(e.scq, 300);
	good_wc(e.scq, 101);
	good_wc(e.scq, 301);
	good_wc(e.scq, 101);
	shows(1, 1);
	refuses(0, 0, key[0]);
}

/* ---- in queues ---- */

/* A send that finds no receive, and behind it bindings; before it some that no completion tells of. */
static void waiting_one_make(void)
{
	windows_open(IBV_MW_TYPE_1);
	bind_window(0, 5, 4096, SIG);
	good_wc(e.scq, 100);
	bind_window(2, 0, 4096, 0);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, SIG));
	bind_window(0, 0, 4096, 0);
	bind_window(0, 0, 4096, SIG);
	bind_window(1, 0, 4096, SIG);
}

static void waiting_one_check(void)
{
	uint32_t newest = key[0];

	expect_empty(e.scq);
	key[0] = (newest & ~0xffu) | ((newest - 2) & 0xff);
	shows(0, 3);
	shows(2, 3);
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	good_wc(e.scq, 100);
	good_wc(e.scq, 101);
	refuses(0, 1, key[0]);
	key[0] = newest;
	shows(0, 2);
	shows(1, 2);
}

static void waiting_own_make(void)
{
	windows_open(IBV_MW_TYPE_2);
	bind_by_post(0, SIG);
	bind_by_post(1, 0);
	bind_by_post(2, 0);
	invalidate_here(2, 0);
	good_wc(e.scq, 100);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, SIG) && !post(&e, 1, 1, IBV_WR_SEND, 0, 64, 0, 0) && !post(&e, 2, 1, IBV_WR_SEND, 0, 64, 0, 0));
	invalidate_here(0, 0);
	bind_by_post(0, SIG);
}

static void waiting_own_check(void)
{
	expect_empty(e.scq);
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	good_wc(e.scq, 100);
	shows(0, 0);
	for (int i = 1; i < 3; i++) {
		die_unless(!post_recv(&e, i, 10, 4096, 64));
		good_wc(e.rcq, 10);
	}
	shows(1, 1);
	refuses(0, 0, old[0]);
	refuses(2, 2, key[2]);
}

/* ---- what is refused ---- */

/* A binding that waits, of a window that is given back. */
static void gone_make(void)
{
	windows_open(IBV_MW_TYPE_1);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, SIG));
	bind_window(0, 0, 4096, SIG);
	die_unless(!ibv_dealloc_mw(mw[0]));
	mw[0] = NULL;
}

static void gone_check(void)
{
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	expect_wc(e.scq, 100, IBV_WC_MW_BIND_ERR);
}

/* A binding that was executed, or not: the queue is emptied. */
static void unsure_make(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	windows_open(IBV_MW_TYPE_1);
	bind_window(0, 0, 4096, 0);
	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
}

static void broken_make(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	windows_open(IBV_MW_TYPE_2);
	bind_by_post(0, SIG);
	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
}

const struct object window_objects[] = {
	{ "window of type 1", NULL, bound_make, bound_check, windows_close },
	{ "window of type 2", NULL, own_make, own_check, windows_close },
	{ "window invalidated before its binding is polled", NULL, turns_make, turns_check, windows_close },
	{ "binding of type 1 that waits", NULL, waiting_one_make, waiting_one_check, windows_close },
	{ "binding of type 2 that waits", NULL, waiting_own_make, waiting_own_check, windows_close },
	{ "binding of a window given back", "given back", gone_make, gone_check, windows_close },
	{ "binding of an emptied queue", "nobody knows", unsure_make, NULL, windows_close },
	{ "window of a broken queue pair", "cannot send", broken_make, NULL, windows_close },
	{ 0 },
};
