/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of requests, polls, events, channels, and what is not there. */
#include "verbs_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>

/* ---- an open row of requests, an open poll ---- */

static struct ibv_qp_ex *qx;
static struct ibv_cq_ex *cx;

static void extended_make(struct ibv_cq_init_attr_ex c)
{
	struct ibv_qp_init_attr_ex q = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND,
					 .cap = { .max_send_wr = 128, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1,
						  .max_inline_data = 32 } };

	if (!e.ctx)
		end_open(&e, 1, SIZE);
	c.cqe = 16;
	c.cq_context = &e;
	c.wc_flags |= IBV_WC_STANDARD_FLAGS;
	die_unless((cx = ibv_create_cq_ex(e.ctx, &c)));
	q.pd = e.pd;
	q.send_cq = q.recv_cq = ibv_cq_ex_to_cq(cx);
	die_unless((qx = ibv_qp_to_qp_ex(ibv_create_qp_ex(e.ctx, &q))));
	die_unless(!ibv_destroy_qp(e.qp[0]));
	e.qp[0] = &qx->qp_base;
	e.me.qpn[0] = qx->qp_base.qp_num;
	e.scq = e.rcq; /* the other one is used no more */
	end_connect_to(&e, &e.me);
}

static void builder_make(void)
{
	extended_make((struct ibv_cq_init_attr_ex){ 0 });
	fill(e.buf, 64, 3);
	die_unless(!post_recv(&e, 0, 1, 4096, 64));
	ibv_wr_start(qx);
	qx->wr_id = 2;
	qx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qx);
	ibv_wr_set_sge(qx, e.mr->lkey, (uintptr_t)e.buf, 64);
	qx->wr_id = 3;
	ibv_wr_send(qx);
	ibv_wr_set_inline_data(qx, e.buf, 20);
}

static void builder_check(void)
{
	die_unless(!post_recv(&e, 0, 4, 8192, 64));
	memset(e.buf, 0, 20); /* what was inline is not read any more; the rest is */
	fill(e.buf, 64, 5);
	die_unless(!ibv_wr_complete(qx));
	good_wc(ibv_cq_ex_to_cq(cx), 1);
	good_wc(ibv_cq_ex_to_cq(cx), 2);
	good_wc(ibv_cq_ex_to_cq(cx), 4);
	good_wc(ibv_cq_ex_to_cq(cx), 3);
	die_unless(filled(e.buf + 4096, 64, 5) && filled(e.buf + 8192, 20, 3));
}

static void poll_make(void)
{
	struct ibv_poll_cq_attr none = { 0 };

	extended_make((struct ibv_cq_init_attr_ex){ 0 });
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post_recv(&e, 0, 10 + i, 4096 * i, 64));
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, (uint32_t)(i + 1), 0, 0));
	die_unless(!ibv_start_poll(cx, &none) && cx->wr_id == 10);
}

static void poll_check(void)
{
	die_unless(cx->wr_id == 10 && ibv_wc_read_byte_len(cx) == 1 && ibv_wc_read_qp_num(cx) == qx->qp_base.qp_num);
	die_unless(!ibv_next_poll(cx) && cx->wr_id == 11 && ibv_wc_read_byte_len(cx) == 2);
	die_unless(!ibv_next_poll(cx) && cx->wr_id == 12 && ibv_wc_read_opcode(cx) == IBV_WC_RECV);
	die_unless(ibv_next_poll(cx) == ENOENT);
	ibv_end_poll(cx);
}

/* Three completions: the program looks at the first, the others are not polled. */
static uint64_t stamp;

static void stamps_make(void)
{
	struct ibv_poll_cq_attr none = { 0 };

	extended_make((struct ibv_cq_init_attr_ex){ .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
								IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK });
	for (uint64_t i = 0; i < 3; i++) {
		die_unless(!post_recv(&e, 0, 10 + i, 4096 * i, 64));
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, (uint32_t)(i + 1), 0, 0));
	}
	die_unless(!ibv_start_poll(cx, &none) && cx->wr_id == 10);
	stamp = ibv_wc_read_completion_ts(cx);
	die_unless(stamp);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void stamps_check(void)
{
	uint64_t after = now(), last = stamp;

	die_unless(cx->wr_id == 10 && ibv_wc_read_completion_ts(cx) == stamp);
	for (uint64_t i = 1; i < 3; i++) {
		die_unless(!ibv_next_poll(cx) && cx->wr_id == 10 + i && ibv_wc_read_byte_len(cx) == i + 1);
		die_unless(ibv_wc_read_completion_ts(cx) > last && ibv_wc_read_completion_ts(cx) < after);
		die_unless(ibv_wc_read_completion_wallclock_ns(cx));
		last = ibv_wc_read_completion_ts(cx);
	}
	die_unless(ibv_next_poll(cx) == ENOENT);
	ibv_end_poll(cx);
	die_unless(!post_recv(&e, 0, 20, 0, 64) && !post(&e, 0, 21, IBV_WR_SEND, 0, 9, 0, IBV_SEND_SIGNALED));
	die_unless(!ibv_start_poll(cx, &(struct ibv_poll_cq_attr){ 0 }) && cx->wr_id == 20 && ibv_wc_read_completion_ts(cx) > after);
	die_unless(!ibv_next_poll(cx) && cx->wr_id == 21 && ibv_wc_read_completion_ts(cx) > after);
	ibv_end_poll(cx);
}

/* A queue of a parent domain whose overrun is no fault: it is not after the restart. */
static struct ibv_pd *cq_parent;

static void overrun_check(void)
{
	struct pollfd p = { .fd = e.ctx->async_fd, .events = POLLIN };
	struct ibv_wc wc;
	int n = 0;

	for (uint64_t i = 0; i < 100; i++)
		die_unless(!post(&e, 0, i, IBV_WR_RDMA_WRITE, 0, 8, 4096, IBV_SEND_SIGNALED));
	while (ibv_poll_cq(ibv_cq_ex_to_cq(cx), 1, &wc) > 0)
		die_unless(!wc.status && wc.wr_id == (uint64_t)n++);
	die_unless(n >= 16 && n < 100 && poll(&p, 1, 0) == 0);
}

static void overrun_unmake(void)
{
	qp_unmake();
	die_unless(!ibv_destroy_cq(ibv_cq_ex_to_cq(cx)));
}

static void parent_cq_make(void)
{
	struct ibv_td_init_attr t = { 0 };
	struct ibv_parent_domain_init_attr p = { 0 };

	end_open(&e, 1, SIZE);
	p.pd = e.pd;
	die_unless((p.td = ibv_alloc_td(e.ctx, &t)) && (cq_parent = ibv_alloc_parent_domain(e.ctx, &p)));
	extended_make((struct ibv_cq_init_attr_ex){ .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
						    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, .parent_domain = cq_parent });
}

/* ---- events ---- */

static int event_there(void)
{
	struct pollfd p = { .fd = e.ctx->async_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* The second can send to the first, which stays in RTR. */
static void half_connected(void)
{
	end_open(&e, 2, SIZE);
	e.other = e.me;
	for (int i = 0; i < 2; i++)
		qp_to_init(e.qp[i], e.access);
	qp_to_rtr(e.qp[0], e.me.qpn[1], &e);
	qp_to_rts(e.qp[1], e.me.qpn[0], &e);
}

/* The first message comes in RTR: COMM_EST. The wrong key of the second: an error event of the responder. */
static void events_make(void)
{
	half_connected();
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post(&e, 1, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	e.other.rkey ^= 0x5a5a00;
	die_unless(!post(&e, 1, 3, IBV_WR_RDMA_WRITE, 0, 64, 0, IBV_SEND_SIGNALED));
	expect_wc(e.scq, 3, IBV_WC_REM_ACCESS_ERR);
	die_unless(event_there());
}

static void events_check(void)
{
	struct ibv_async_event ev;

	good_wc(e.rcq, 1);
	die_unless(event_there());
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_COMM_EST && ev.element.qp == e.qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_QP_ACCESS_ERR && ev.element.qp == e.qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!event_there());
}

/* That of the first message is told once, not once in each life. */
static void established_make(void)
{
	struct ibv_async_event ev;

	half_connected();
	die_unless(!post(&e, 1, 2, IBV_WR_RDMA_WRITE, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_COMM_EST);
	ibv_ack_async_event(&ev);
}

static void established_check(void)
{
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post(&e, 1, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	good_wc(e.rcq, 1);
	die_unless(!event_there());
}

/* A device that cannot tell an event again. */
static void events_lost_make(void)
{
	events_make();
	verbs_backend.softrdma_async_raise = NULL;
}

/* What a program cannot even make is nothing to save. */
static void absent_make(void)
{
	struct ibv_ece ece = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow), .port = 1 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1 };

	connected(IBV_QPT_RC);
	wq.pd = e.pd;
	wq.cq = e.rcq;
	die_unless(ibv_set_ece(e.qp[0], &ece) && ibv_query_ece(e.qp[0], &ece));
	die_unless(!ibv_create_counters(e.ctx, &counters) && errno == EOPNOTSUPP);
	die_unless(!ibv_create_flow(e.qp[0], &flow) && errno == EOPNOTSUPP);
	die_unless(!ibv_create_wq(e.ctx, &wq) && errno == EOPNOTSUPP);
	die_unless(!ibv_alloc_null_mr(e.pd) && !ibv_reg_dmabuf_mr(e.pd, 0, 64, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	die_unless(!ibv_import_device(0) && !ibv_import_pd(e.ctx, 0) && !ibv_import_mr(e.pd, 0));
}

const struct object other_objects[] = {
	{ "open row of requests", NULL, builder_make, builder_check, NULL },
	{ "open poll", NULL, poll_make, poll_check, NULL },
	{ "time stamps", NULL, stamps_make, stamps_check, NULL },
	{ "queue of a parent domain, overrun", NULL, parent_cq_make, overrun_check, overrun_unmake },
	{ "unread events", NULL, events_make, events_check, NULL },
	{ "a read event of the first message", NULL, established_make, established_check, NULL },
	{ "unread events of another device", "asynchronous event", events_lost_make, events_check, NULL },
	{ "what is not there", NULL, absent_make, send_works, NULL },
	{ 0 },
};
