/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pair states: every move from every state for each transport with each set of attributes that matters,
 * against the table of the specification (vol. 1, 11.2.4.2) written down here once more; draining; errors; reset.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

struct legal {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required, optional;
};

enum {
	P = IBV_QP_PKEY_INDEX,
	PORT = IBV_QP_PORT,
	ACC = IBV_QP_ACCESS_FLAGS,
	Q = IBV_QP_QKEY,
	CUR = IBV_QP_CUR_STATE,
	AV = IBV_QP_AV,
	ALT = IBV_QP_ALT_PATH,
	MIG = IBV_QP_PATH_MIG_STATE,
	RNR = IBV_QP_MIN_RNR_TIMER,
	SPSN = IBV_QP_SQ_PSN,
	NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	DRD = IBV_QP_MAX_DEST_RD_ATOMIC,
	DEST = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	THEIRS = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	OURS = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
	RETRY = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

static const struct legal table[] = {
	{ IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, P | PORT | Q, 0 },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, P | PORT | Q },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, P | Q },
	{ IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, SPSN, CUR | Q },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | Q },
	{ IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | Q },
	{ IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, P | Q },
	{ IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | Q },

	{ IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, P | PORT | ACC, 0 },
	{ IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, P | PORT | ACC },
	{ IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, DEST, ACC | P },
	{ IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, SPSN, CUR | ACC | MIG },
	{ IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACC | MIG },
	{ IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY },
	{ IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ACC | MIG },
	{ IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0, AV | ACC | P | MIG },
	{ IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | ACC },

	{ IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, P | PORT | ACC, 0 },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, P | PORT | ACC },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, DEST | DRD | RNR, ACC | P },
	{ IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, SPSN | RETRY, CUR | ACC | RNR | MIG },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACC | RNR | MIG },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ACC | RNR | MIG },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, PORT | AV | RETRY | DRD | ACC | P | RNR | MIG },

	/* The two halves of an extended connection; what is the other half's may be said to each. */
	{ IBV_QPT_XRC_SEND, IBV_QPS_RESET, IBV_QPS_INIT, P | PORT | ACC, THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_INIT, 0, P | PORT | ACC | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR, DEST, ACC | P | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTR, IBV_QPS_RTS, SPSN | RETRY, CUR | ACC | MIG | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACC | MIG | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ACC | MIG | THEIRS },
	{ IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_SQD, 0, PORT | AV | RETRY | ACC | P | MIG | THEIRS },

	{ IBV_QPT_XRC_RECV, IBV_QPS_RESET, IBV_QPS_INIT, P | PORT | ACC, OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_INIT, 0, P | PORT | ACC | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_RTR, DEST | DRD | RNR, ACC | P | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, SPSN | IBV_QP_TIMEOUT, CUR | ACC | RNR | MIG | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACC | RNR | MIG | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_SQD, 0, NOTIFY | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ACC | RNR | MIG | OURS },
	{ IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_SQD, 0, PORT | AV | IBV_QP_TIMEOUT | DRD | ACC | P | RNR | MIG | OURS },
};

static const int every_bit[] = { CUR, NOTIFY, ACC, P, PORT, Q, AV, IBV_QP_PATH_MTU, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT,
				 IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, ALT, RNR, SPSN, DRD, MIG,
				 IBV_QP_CAP, IBV_QP_DEST_QPN };
#define NBITS (sizeof(every_bit) / sizeof(*every_bit))

static const struct legal *legal_find(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (table[i].type == type && table[i].from == from && table[i].to == to)
			return &table[i];
	return NULL;
}

static struct ibv_xrcd *domain;

static struct ibv_qp *qp_make(struct end *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = e->scq, .recv_cq = e->rcq, .qp_type = type, .pd = e->pd, .xrcd = domain,
					    .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	init.comp_mask = type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
	return ibv_create_qp_ex(e->ctx, &init);
}

static struct ibv_qp *qp_in(struct end *e, enum ibv_qp_type type, enum ibv_qp_state state)
{
	struct ibv_qp *qp = qp_make(e, type);
	struct ibv_qp_attr a = { .qp_state = state };

	die_unless(qp);
	if (state == IBV_QPS_RESET)
		return qp;
	qp_to_init(qp, ALL_ACCESS);
	if (state == IBV_QPS_INIT)
		return qp;
	if (state == IBV_QPS_RTR) {
		qp_to_rtr(qp, qp->qp_num, e);
		return qp;
	}
	qp_to_rts(qp, qp->qp_num, e);
	if (state == IBV_QPS_SQE) { /* by an own fault */
		struct ibv_sge s = { 0, 8, 12345 };
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
		struct ibv_ah_attr ah = { .dlid = e->me.lid, .port_num = 1 };

		wr.wr.ud.ah = ibv_create_ah(e->pd, &ah);
		die_unless(!ibv_post_send(qp, &wr, &bad));
		die_unless(!ibv_destroy_ah(wr.wr.ud.ah));
		expect_wc(e->scq, 1, IBV_WC_LOC_PROT_ERR);
	} else if (state != IBV_QPS_RTS) {
		die_unless(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	}
	return qp;
}

static int try_move(struct end *e, enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	struct ibv_qp *qp = qp_in(e, type, from);
	struct ibv_qp_attr a = { .qp_state = to, .cur_qp_state = from, .port_num = 1, .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = qp->qp_num, .ah_attr = { .dlid = e->me.lid, .port_num = 1 } };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;
	int err = ibv_modify_qp(qp, &a, IBV_QP_STATE | mask);

	die_unless(!ibv_query_qp(qp, &now, IBV_QP_STATE, &init));
	die_unless(now.qp_state == (err ? from : to));
	die_unless(init.qp_type == type);
	die_unless(!ibv_destroy_qp(qp));
	return err;
}

static int fails(struct end *e, enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		 int expect)
{
	int err = try_move(e, type, from, to, mask);

	if (err == expect)
		return 0;
	fprintf(stderr, "type %d: %d -> %d with mask %#x: %d, expected %d\n", type, from, to, (unsigned int)mask, err,
		expect);
	return 1;
}

/* All of a legal move's required attributes; each left out; each optional one added; each other one added. */
static int one_move(struct end *e, enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	const struct legal *l = legal_find(type, from, to);
	int any = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET);
	int half = type == IBV_QPT_XRC_SEND ? THEIRS : type == IBV_QPT_XRC_RECV ? OURS : 0;
	int required = l ? l->required : 0, allowed = l ? l->required | l->optional : half, bad = 0;
	size_t i;

	if (!l && !any)
		return fails(e, type, from, to, 0, EINVAL) + fails(e, type, from, to, P | PORT | ACC, EINVAL);
	bad += fails(e, type, from, to, required, 0);
	for (i = 0; i < NBITS; i++) {
		int bit = every_bit[i];

		if (required & bit)
			bad += fails(e, type, from, to, required & ~bit, EINVAL);
		else
			bad += fails(e, type, from, to, required | bit, allowed & bit ? 0 : EINVAL);
	}
	return bad;
}

static void test_moves(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV };
	struct ibv_xrcd_init_attr x = { .fd = -1, .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	int t, from, to, bad = 0;
	struct end e;

	end_open(&e, 0, SIZE);
	domain = ibv_open_xrcd(e.ctx, &x);
	assert_non_null(domain);
	for (t = 0; t < 5; t++)
		for (from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
			for (to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
				if (from != IBV_QPS_SQE || types[t] == IBV_QPT_UC || types[t] == IBV_QPT_UD)
					bad += one_move(&e, types[t], (enum ibv_qp_state)from, (enum ibv_qp_state)to);
	assert_int_equal(bad, 0);
	assert_int_equal(ibv_close_xrcd(domain), 0);
	end_close(&e);
}

static int value_refused(struct end *e, enum ibv_qp_state from, struct ibv_qp_attr a, int mask)
{
	struct ibv_qp *qp = qp_in(e, IBV_QPT_RC, from);
	int err = ibv_modify_qp(qp, &a, mask);

	die_unless(!ibv_destroy_qp(qp));
	return err == EINVAL;
}

static void test_values(void **state)
{
	struct end e;

	end_open(&e, 0, SIZE);
	assert_true(value_refused(&e, IBV_QPS_INIT, (struct ibv_qp_attr){ .port_num = 2 }, PORT));
	assert_true(value_refused(&e, IBV_QPS_INIT, (struct ibv_qp_attr){ .pkey_index = 1 }, P));
	assert_true(value_refused(&e, IBV_QPS_RTS, (struct ibv_qp_attr){ .min_rnr_timer = 32 }, RNR));
	assert_true(value_refused(&e, IBV_QPS_RTS, (struct ibv_qp_attr){ .path_mig_state = IBV_MIG_REARM }, MIG));
	assert_true(value_refused(&e, IBV_QPS_SQD, (struct ibv_qp_attr){ .retry_cnt = 8 }, IBV_QP_RETRY_CNT));
	assert_true(value_refused(&e, IBV_QPS_SQD, (struct ibv_qp_attr){ .timeout = 32 }, IBV_QP_TIMEOUT));
	assert_true(value_refused(&e, IBV_QPS_RTS, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
									 .cur_qp_state = IBV_QPS_SQD },
				  IBV_QP_STATE | CUR));
	end_close(&e);
}

/* ---- an alternate path: the device has none, as it says ---- */

static void path_is_plain(struct ibv_qp *qp, enum ibv_qp_state state)
{
	static const struct ibv_ah_attr none;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	memset(&a, 0xee, sizeof(a));
	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE | ALT | MIG, &init), 0);
	assert_int_equal(a.qp_state, state);
	assert_int_equal(a.path_mig_state, IBV_MIG_MIGRATED);
	assert_int_equal(a.alt_port_num | a.alt_pkey_index | a.alt_timeout, 0);
	assert_memory_equal(&a.alt_ah_attr, &none, sizeof(none));
}

static void path_refused(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, enum ibv_qp_state state)
{
	a->alt_ah_attr = a->ah_attr;
	a->alt_port_num = 1;
	a->alt_timeout = 14;
	for (a->path_mig_state = IBV_MIG_MIGRATED; a->path_mig_state <= IBV_MIG_ARMED; a->path_mig_state++) {
		assert_int_equal(ibv_modify_qp(qp, a, mask | ALT), EINVAL);
		assert_int_equal(ibv_modify_qp(qp, a, mask | ALT | MIG), EINVAL);
		path_is_plain(qp, state);
	}
}

/* A program that asks for one is told no, and its connection is as it was; one that says that it has none is right. */
static void test_alternate_path(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				 .ah_attr = { .port_num = 1 } };
	struct ibv_device_attr device;
	struct ibv_qp *qp;
	struct end e;

	end_open(&e, 0, SIZE);
	assert_int_equal(ibv_query_device(e.ctx, &device), 0);
	assert_false(device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
	a.ah_attr.dlid = e.me.lid;
	qp = qp_in(&e, IBV_QPT_RC, IBV_QPS_INIT);
	a.dest_qp_num = qp->qp_num;
	path_refused(qp, &a, IBV_QP_STATE | DEST | DRD | RNR, IBV_QPS_INIT);
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | DEST | DRD | RNR), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .ah_attr = a.ah_attr };
	path_refused(qp, &a, IBV_QP_STATE | SPSN | RETRY, IBV_QPS_RTR);
	a.path_mig_state = IBV_MIG_MIGRATED;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | SPSN | RETRY | MIG), 0);
	path_refused(qp, &a, 0, IBV_QPS_RTS);
	for (a.path_mig_state = IBV_MIG_REARM; a.path_mig_state <= IBV_MIG_ARMED; a.path_mig_state++)
		assert_int_equal(ibv_modify_qp(qp, &a, MIG), EINVAL);
	path_is_plain(qp, IBV_QPS_RTS);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	end_close(&e);
}

/* ---- draining ---- */

static void drain(struct end *e, int notify)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = (uint8_t)notify };

	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE | NOTIFY));
}

static int drained_events(struct end *e)
{
	struct pollfd p = { .fd = e->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;
	int n = 0;

	while (poll(&p, 1, 0) == 1) {
		die_unless(!ibv_get_async_event(e->ctx, &ev));
		die_unless(ev.event_type == IBV_EVENT_SQ_DRAINED && ev.element.qp == e->qp[0]);
		ibv_ack_async_event(&ev);
		n++;
	}
	return n;
}

static int draining(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	die_unless(!ibv_query_qp(e->qp[0], &a, IBV_QP_STATE, &init));
	die_unless(a.qp_state == IBV_QPS_SQD);
	return a.sq_draining;
}

static void test_drain(void **state)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	struct end a, b;

	end_open(&a, 1, SIZE);
	end_open(&b, 1, SIZE);
	end_connect_to(&a, &b.me);
	end_connect_to(&b, &a.me);
	drain(&a, 1); /* nothing is under way */
	assert_int_equal(draining(&a), 0);
	assert_int_equal(drained_events(&a), 1);
	die_unless(!ibv_modify_qp(a.qp[0], &rts, IBV_QP_STATE));
	drain(&a, 0);
	assert_int_equal(drained_events(&a), 0);
	die_unless(!ibv_modify_qp(a.qp[0], &rts, IBV_QP_STATE));
	/* the head waits for a receive: that one ends, the next does not begin */
	die_unless(!post(&a, 0, 1, IBV_WR_SEND, 0, 8, 0, SIG));
	die_unless(!post(&a, 0, 2, IBV_WR_SEND, 0, 8, 0, SIG));
	drain(&a, 1);
	assert_int_equal(draining(&a), 1);
	assert_int_equal(drained_events(&a), 0);
	die_unless(!post_recv(&b, 0, 11, 0, 10));
	die_unless(!post_recv(&b, 0, 12, 0, 10));
	good_wc(a.scq, 1);
	good_wc(b.rcq, 11);
	expect_empty(a.scq);
	expect_empty(b.rcq);
	assert_int_equal(draining(&a), 0);
	assert_int_equal(drained_events(&a), 1);
	die_unless(!ibv_modify_qp(a.qp[0], &rts, IBV_QP_STATE));
	good_wc(a.scq, 2);
	good_wc(b.rcq, 12);
	assert_int_equal(drained_events(&a), 0);
	/* what it waits for ends in an error: the queue pair does too */
	rts.min_rnr_timer = 1;
	die_unless(!ibv_modify_qp(b.qp[0], &rts, IBV_QP_STATE | RNR));
	end_close(&a);
	end_close(&b);
}

/* Error from each state that has something posted: all of it comes back flushed, in its order, and RESET takes all away. */
static void test_flush_and_reset(void **state)
{
	static const enum ibv_qp_state from[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD };
	struct ibv_qp_attr a;
	struct end e;
	size_t i;

	for (i = 0; i < 4; i++) {
		struct ibv_sge s;
		struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1 }, *bad;
		struct ibv_send_wr swr = { .wr_id = 3, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *sbad;
		struct ibv_qp *qp;

		end_open(&e, 0, SIZE);
		s = (struct ibv_sge){ (uintptr_t)e.buf, 8, e.mr->lkey };
		qp = qp_in(&e, IBV_QPT_RC, from[i]);
		die_unless(!ibv_post_recv(qp, &wr, &bad));
		wr.wr_id = 2;
		die_unless(!ibv_post_recv(qp, &wr, &bad));
		assert_int_equal(ibv_post_send(qp, &swr, &sbad), from[i] == IBV_QPS_SQD || from[i] == IBV_QPS_RTS ? 0 : EINVAL);
		a.qp_state = IBV_QPS_ERR;
		die_unless(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
		expect_wc(e.rcq, 1, from[i] == IBV_QPS_RTS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
		expect_wc(e.rcq, 2, IBV_WC_WR_FLUSH_ERR);
		if (from[i] == IBV_QPS_SQD)
			expect_wc(e.scq, 3, IBV_WC_WR_FLUSH_ERR);
		expect_empty(e.scq);
		die_unless(!ibv_post_recv(qp, &wr, &bad));
		a.qp_state = IBV_QPS_RESET;
		die_unless(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
		expect_empty(e.rcq);
		die_unless(!ibv_destroy_qp(qp));
		end_close(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_alternate_path),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_flush_and_reset),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
