/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues, the states of queue pairs, what waits in a send queue. */
#include "verbs_objects.h"

#include <poll.h>
#include <string.h>

/*
 * Queue pairs 0 and 1 send three messages each to 2 and 3, whose shared queue has four receives: two sends wait. All but the last sends are unsignalled. The limit's
 * event is unread; a second limit is armed on another queue.
 */
static struct ibv_srq *srq, *other_srq;

static void shared_post(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)e.buf + 4096 * id, 64, e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	die_unless(!ibv_post_srq_recv(srq, &wr, &bad));
}

static void shared_connect(void)
{
	struct ibv_qp_init_attr init = { .send_cq = e.scq, .recv_cq = e.rcq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };

	for (int i = 2; i < 4; i++) {
		die_unless(!ibv_destroy_qp(e.qp[i]) && (e.qp[i] = ibv_create_qp(e.pd, &init)));
		e.me.qpn[i] = e.qp[i]->qp_num;
	}
	e.other = e.me;
	for (int i = 0; i < 4; i++) {
		qp_to_init(e.qp[i], e.access);
		qp_to_rts(e.qp[i], e.me.qpn[(i + 2) % 4], &e);
	}
}

static void srq_make(void)
{
	struct ibv_srq_init_attr init = { .srq_context = &srq, .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };

	end_open(&e, 4, SIZE);
	die_unless((srq = ibv_create_srq(e.pd, &init)) && (other_srq = ibv_create_srq(e.pd, &init)));
	shared_connect();
	for (uint64_t i = 1; i <= 4; i++)
		shared_post(i);
	die_unless(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	limit.srq_limit = 1;
	die_unless(!ibv_modify_srq(other_srq, &limit, IBV_SRQ_LIMIT));
	for (uint64_t i = 0; i < 6; i++) {
		fill(e.buf + 65536 + i * 64, 64, (unsigned int)i);
		die_unless(!post(&e, (int)i / 3, 20 + i, IBV_WR_SEND, 65536 + i * 64, 64, 0, i % 3 == 2 ? IBV_SEND_SIGNALED : 0));
	}
}

/* The receive @id has the message @message of its connection. */
static void shared_expect(uint64_t id, uint64_t message)
{
	struct ibv_wc wc = good_wc(e.rcq, id);

	die_unless(wc.qp_num == e.qp[2 + message / 3]->qp_num && wc.byte_len == 64);
	die_unless(filled(e.buf + 4096 * id, 64, (unsigned int)message));
}

static void srq_check(void)
{
	struct ibv_async_event ev;
	struct ibv_srq_attr attr;

	for (uint64_t i = 0; i < 4; i++)
		shared_expect(i + 1, i);
	expect_empty(e.rcq);
	good_wc(e.scq, 22);
	expect_empty(e.scq);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == srq);
	ibv_ack_async_event(&ev);
	die_unless(!ibv_query_srq(srq, &attr) && attr.max_wr == 8 && !attr.srq_limit);
	die_unless(!ibv_query_srq(other_srq, &attr) && attr.srq_limit == 1);
	shared_post(6);
	shared_post(5);
	shared_expect(6, 4);
	shared_expect(5, 5);
	good_wc(e.scq, 25);
	expect_empty(e.scq);
	expect_empty(e.rcq);
	shared_post(7); /* is there at the second checkpoint, and stays */
}

static void srq_unmake(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	pair_restart();
	fill(e.buf + 65536, 64, 9);
	die_unless(!post(&e, 1, 30, IBV_WR_SEND, 65536, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 30);
	die_unless(good_wc(e.rcq, 7).qp_num == e.qp[3]->qp_num && filled(e.buf + 4096 * 7, 64, 9));
	for (int i = 0; i < 4; i++)
		die_unless(!ibv_destroy_qp(e.qp[i]));
	die_unless(!ibv_destroy_srq(srq) && !ibv_destroy_srq(other_srq));
}

static int event_waits(void)
{
	struct pollfd p = { .fd = e.ctx->async_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static enum ibv_qp_state state_of(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	die_unless(!ibv_query_qp(e.qp[0], &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static void move(enum ibv_qp_state to)
{
	struct ibv_qp_attr a = { .qp_state = to };

	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
}

static void sqd_make(void)
{
	connected(IBV_QPT_RC);
	send_works();
	die_unless(!post_recv(&e, 0, 7, 8192, 64));
	move(IBV_QPS_SQD);
}

/* What is posted in SQD waits there. */
static void sqd_check(void)
{
	die_unless(state_of() == IBV_QPS_SQD);
	die_unless(!post(&e, 0, 8, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	expect_empty(e.scq);
	expect_empty(e.rcq);
	move(IBV_QPS_RTS);
	good_wc(e.scq, 8);
	good_wc(e.rcq, 7);
	send_works();
}

/* Two sends that were executed, unsignalled, and two behind them that have not begun; and one receive for them is there. */
static void sqd_sends_make(void)
{
	connected(IBV_QPT_RC);
	fill(e.buf, 64, 3);
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post_recv(&e, 0, 30 + i, 8192 * (i + 1), 64));
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, 0) && !post(&e, 0, 2, IBV_WR_SEND, 0, 32, 0, 0));
	move(IBV_QPS_SQD);
	die_unless(!post(&e, 0, 8, IBV_WR_SEND, 0, 16, 0, IBV_SEND_SIGNALED) && !post(&e, 0, 9, IBV_WR_SEND, 0, 8, 0, IBV_SEND_SIGNALED));
}

static void sqd_sends_check(void)
{
	die_unless(state_of() == IBV_QPS_SQD);
	die_unless(good_wc(e.rcq, 30).byte_len == 64 && good_wc(e.rcq, 31).byte_len == 32);
	expect_empty(e.rcq);
	expect_empty(e.scq);
	move(IBV_QPS_RTS);
	good_wc(e.scq, 8);
	die_unless(good_wc(e.rcq, 32).byte_len == 16);
	expect_empty(e.scq);
	die_unless(!post_recv(&e, 0, 33, 8192, 64));
	good_wc(e.scq, 9);
	die_unless(good_wc(e.rcq, 33).byte_len == 8);
	send_works();
}

/* One has begun, and finds no receive. */
static void sqd_begun_make(void)
{
	connected(IBV_QPT_RC);
	die_unless(!post(&e, 0, 8, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	move(IBV_QPS_SQD);
}

static void sqd_begun_unmake(void)
{
	die_unless(state_of() == IBV_QPS_SQD && !post_recv(&e, 0, 7, 8192, 64));
	good_wc(e.scq, 8);
	good_wc(e.rcq, 7);
	move(IBV_QPS_RTS);
	send_works();
}

static void sqe_break(uint64_t id)
{
	uint32_t lkey = e.mr->lkey;

	e.mr->lkey ^= 0x5a5a00;
	die_unless(!post(&e, 0, id, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	e.mr->lkey = lkey;
}

/* A send that failed, and one behind it, whose completions are not polled; a receive, which is still served. */
static void sqe_make(void)
{
	connected(IBV_QPT_UC);
	die_unless(!post_recv(&e, 0, 1, 4096, 64));
	sqe_break(2);
	die_unless(!post(&e, 0, 3, IBV_WR_SEND, 0, 64, 0, 0));
	die_unless(state_of() == IBV_QPS_SQE && !ibv_req_notify_cq(e.scq, 0));
}

static void sqe_check(void)
{
	die_unless(state_of() == IBV_QPS_SQE);
	expect_wc(e.scq, 2, IBV_WC_LOC_PROT_ERR);
	expect_wc(e.scq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.scq);
	die_unless(!post(&e, 0, 4, IBV_WR_SEND, 0, 64, 0, 0));
	expect_wc(e.scq, 4, IBV_WC_WR_FLUSH_ERR);
	move(IBV_QPS_RTS);
	fill(e.buf, 64, 3);
	die_unless(!post(&e, 0, 5, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 5);
	good_wc(e.rcq, 1);
	die_unless(filled(e.buf + 4096, 64, 3));
	send_works();
}

static void err_make(void)
{
	connected(IBV_QPT_RC);
	die_unless(!post_recv(&e, 0, 1, 0, 64));
	move(IBV_QPS_ERR);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, 0));
}

static void err_check(void)
{
	die_unless(state_of() == IBV_QPS_ERR);
	expect_wc(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
	die_unless(!post_recv(&e, 0, 3, 0, 64));
	expect_wc(e.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.rcq);
	expect_empty(e.scq);
}

/* A request that was refused and two that were flushed, of which nothing is polled. */
static void error_make(void)
{
	connected(IBV_QPT_RC);
	die_unless(!post_recv(&e, 0, 1, 0, 64));
	e.other.rkey ^= 0x5a5a00;
	die_unless(!post(&e, 0, 2, IBV_WR_RDMA_WRITE, 0, 64, 4096, IBV_SEND_SIGNALED));
	e.other.rkey ^= 0x5a5a00;
	die_unless(!post(&e, 0, 3, IBV_WR_SEND, 0, 64, 0, 0));
}

static void error_check(void)
{
	die_unless(state_of() == IBV_QPS_ERR);
	expect_wc(e.scq, 2, IBV_WC_REM_ACCESS_ERR);
	expect_wc(e.scq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_wc(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.scq);
	expect_empty(e.rcq);
}

/* Its completions fill the queue, and another queue pair of it has an unsignalled tail, which the drain closes. */
#define FULL 4

static struct ibv_cq *full;

static struct ibv_qp *full_qp(void)
{
	struct ibv_qp_init_attr init = { .send_cq = full, .recv_cq = full, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = FULL, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(e.pd, &init);

	die_unless(qp);
	return qp;
}

static void full_make(void)
{
	end_open(&e, 2, SIZE);
	die_unless((full = ibv_create_cq(e.ctx, FULL, NULL, NULL, 0)));
	for (int i = 0; i < 2; i++) {
		die_unless(!ibv_destroy_qp(e.qp[i]));
		e.qp[i] = full_qp();
		e.me.qpn[i] = e.qp[i]->qp_num;
	}
	end_connect_to(&e, &e.me);
	fill(e.buf, 64, 7);
	for (uint64_t i = 0; i < FULL; i++)
		die_unless(!post(&e, 0, i, IBV_WR_RDMA_WRITE, 0, 64, 4096 * (i + 1), IBV_SEND_SIGNALED));
	die_unless(!post(&e, 1, 9, IBV_WR_RDMA_WRITE, 0, 64, 4096 * 9, 0));
}

static void full_check(void)
{
	die_unless(!event_waits());
	for (uint64_t i = 0; i < FULL; i++)
		die_unless(good_wc(full, i).qp_num == e.qp[0]->qp_num && filled(e.buf + 4096 * (i + 1), 64, 7));
	expect_empty(full);
	die_unless(filled(e.buf + 4096 * 9, 64, 7));
	die_unless(!post(&e, 1, 10, IBV_WR_RDMA_WRITE, 0, 64, 4096, IBV_SEND_SIGNALED));
	good_wc(full, 10);
	expect_empty(full);
	for (uint64_t i = 0; i < FULL; i++) /* as full as it may be */
		die_unless(!post(&e, 0, 20 + i, IBV_WR_RDMA_WRITE, 0, 64, 4096, IBV_SEND_SIGNALED));
}

static void full_unmake(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	for (uint64_t i = 0; i < FULL; i++)
		good_wc(full, 20 + i);
	expect_empty(full);
	die_unless(!event_waits());
}

/* ---- what waits in a send queue ---- */

/* A send that finds no receive, and behind it @last. */
static void behind_a_send(struct ibv_send_wr *last)
{
	connected(IBV_QPT_RC);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	last->wr_id = 2;
	last->send_flags = IBV_SEND_SIGNALED;
	die_unless(!post_wr(&e, 0, last));
}

static void local_inv_make(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = 0x1234 };

	behind_a_send(&wr);
}

static void send_inv_make(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = 0x1234 };

	behind_a_send(&wr);
}

static void local_inv_check(void)
{
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	expect_wc(e.scq, 2, IBV_WC_LOC_QP_OP_ERR);
}

static void send_inv_check(void)
{
	die_unless(!post_recv(&e, 0, 10, 4096, 64) && !post_recv(&e, 0, 11, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	expect_wc(e.scq, 2, IBV_WC_REM_OP_ERR);
}

const struct object queue_objects[] = {
	{ "shared receive queue", NULL, srq_make, srq_check, srq_unmake },
	{ "SQD", NULL, sqd_make, sqd_check, NULL },
	{ "SQD with sends", NULL, sqd_sends_make, sqd_sends_check, NULL },
	{ "SQD, not drained", "SQD with sends", sqd_begun_make, NULL, sqd_begun_unmake },
	{ "SQE", NULL, sqe_make, sqe_check, NULL },
	{ "ERR", NULL, err_make, err_check, NULL },
	{ "errors that are not polled", NULL, error_make, error_check, NULL },
	{ "full completion queue", NULL, full_make, full_check, full_unmake },
	{ "local invalidation", NULL, local_inv_make, local_inv_check, NULL },
	{ "SEND with invalidate", NULL, send_inv_make, send_inv_check, NULL },
	{ 0 },
};
