/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues at their edges: longer and shorter while completions wait and come, overrun, moderated events; and
 * the event of the first message.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

struct pair {
	struct end a, b;
};

static void pair_open(struct pair *p, int nqp)
{
	end_open(&p->a, nqp, SIZE);
	end_open(&p->b, nqp, SIZE);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

static void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

/* ---- resizing ---- */

static struct ibv_qp *qp_on(struct end *e, struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);

	die_unless(qp);
	qp_to_init(qp, ALL_ACCESS);
	qp_to_rts(qp, qp->qp_num, e);
	return qp;
}

static void writes(struct end *e, struct ibv_qp *qp, uint64_t first, uint64_t n)
{
	struct ibv_sge s = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &s, .num_sge = 1, .send_flags = SIG }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)e->buf + 64;
	wr.wr.rdma.rkey = e->mr->rkey;
	for (wr.wr_id = first; wr.wr_id < first + n; wr.wr_id++)
		die_unless(!ibv_post_send(qp, &wr, &bad));
}

static void test_resize(void **state)
{
	static const int sizes[] = { 16, 17, 100, 3000, 40, 5000, 20000 };
	uint64_t sent = 0, got = 0;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct end e;
	size_t i;

	end_open(&e, 0, SIZE);
	cq = ibv_create_cq(e.ctx, 10, NULL, NULL, 0);
	qp = qp_on(&e, cq, 16384);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(ibv_resize_cq(cq, sizes[i]), 0);
		assert_int_equal(cq->cqe, sizes[i]);
		writes(&e, qp, sent, 7);
		sent += 7;
		for (int n = 0; n < 4; n++)
			good_wc(cq, got++);
	}
	/* what waits must have room */
	assert_int_equal(ibv_resize_cq(cq, (int)(sent - got) - 1), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 1 << 20), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, (int)(sent - got)), 0);
	while (got < sent)
		good_wc(cq, got++);
	/* as long as it says */
	assert_int_equal(ibv_resize_cq(cq, 9000), 0);
	writes(&e, qp, sent, 9000);
	for (sent += 9000; got < sent;)
		good_wc(cq, got++);
	expect_empty(cq);
	die_unless(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_close(&e);
}

static int sender_of_many(int sock)
{
	struct end e;
	int i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 0; i < 20000; i++) {
		die_unless(!post(&e, 0, (uint64_t)i, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 8, 0, SIG));
		good_wc(e.scq, (uint64_t)i);
	}
	meet(sock);
	end_close(&e);
	return 0;
}

/* Another process pushes all the time while the queue moves to and fro. */
static void test_resize_under_load(void **state)
{
	static const int sizes[] = { 2048, 1024, 4096, 128, 8192, 300, 16384, 64 };
	int sock, got = 0, posted = 0, round = 0;
	struct end e;
	struct ibv_wc wc;
	pid_t pid = spawn_end(sender_of_many, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	while (got < 20000) {
		while (posted < 20000 && posted - got < 60)
			die_unless(!post_recv(&e, 0, (uint64_t)posted++, 0, 8));
		if (ibv_poll_cq(e.rcq, 1, &wc) == 1) {
			die_unless(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)got++);
			if (got % 97 == 0)
				die_unless(!ibv_resize_cq(e.rcq, sizes[round++ % 8]));
		}
	}
	meet(sock);
	assert_int_equal(reap(pid), 0);
	end_close(&e);
}

/* ---- overrun ---- */

/* These tests also run through fermata's plugin, whose queues have more room than they say. */
static void device_only(void)
{
	if (getenv("OVER_PLUGIN"))
		skip();
}

static struct ibv_async_event next_event(struct ibv_context *ctx)
{
	struct pollfd p = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	die_unless(poll(&p, 1, 20000) == 1);
	die_unless(!ibv_get_async_event(ctx, &ev));
	ibv_ack_async_event(&ev);
	return ev;
}

static void test_overrun(void **state)
{
	struct ibv_async_event ev;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct end e;

	device_only();
	end_open(&e, 0, SIZE);
	cq = ibv_create_cq(e.ctx, 4, NULL, NULL, 0);
	qp = qp_on(&e, cq, 64);
	writes(&e, qp, 0, 5);
	ev = next_event(e.ctx);
	assert_int_equal(ev.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(ev.element.cq, cq);
	ev = next_event(e.ctx);
	assert_int_equal(ev.event_type, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(ev.element.qp, qp);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	for (uint64_t i = 0; i < 4; i++)
		good_wc(cq, i);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), -1);
	die_unless(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_close(&e);
}

/* The receiver's queue: the message has arrived, the other end does not care. */
static void test_overrun_of_receives(void **state)
{
	struct ibv_async_event ev;
	struct pair p;

	device_only();
	pair_open(&p, 1);
	assert_int_equal(ibv_resize_cq(p.b.rcq, 2), 0);
	for (uint64_t i = 0; i < 4; i++)
		die_unless(!post_recv(&p.b, 0, i, 0, 8));
	for (uint64_t i = 0; i < 3; i++) {
		die_unless(!post(&p.a, 0, i, IBV_WR_SEND, 0, 8, 0, SIG));
		good_wc(p.a.scq, i);
	}
	ev = next_event(p.b.ctx);
	assert_int_equal(ev.event_type, IBV_EVENT_CQ_ERR);
	ev = next_event(p.b.ctx);
	assert_int_equal(ev.event_type, IBV_EVENT_QP_FATAL);
	die_unless(!post(&p.a, 0, 9, IBV_WR_SEND, 0, 8, 0, SIG));
	expect_wc(p.a.scq, 9, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

static void test_overrun_ignored(void **state)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct pollfd p = { .events = POLLIN };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct end e;

	device_only();
	end_open(&e, 0, SIZE);
	cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(e.ctx, &init));
	qp = qp_on(&e, cq, 64);
	writes(&e, qp, 0, 9);
	p.fd = e.ctx->async_fd;
	assert_int_equal(poll(&p, 1, 0), 0);
	for (uint64_t i = 0; i < 4; i++)
		good_wc(cq, i);
	expect_empty(cq);
	writes(&e, qp, 20, 1);
	good_wc(cq, 20);
	die_unless(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_close(&e);
}

/* ---- moderation ---- */

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { count, period } };

	return ibv_modify_cq(cq, &a);
}

static void event(struct end *e, struct ibv_cq *cq)
{
	struct ibv_cq *which;
	void *context;

	die_unless(!ibv_get_cq_event(e->channel, &which, &context) && which == cq);
	ibv_ack_cq_events(cq, 1);
}

static int ready(struct end *e, int ms)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static void write_one(struct pair *p, uint64_t id)
{
	die_unless(!post(&p->a, 0, id, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG));
}

static void test_moderation(void **state)
{
	struct ibv_device_attr_ex d;
	uint64_t from;
	struct pair p;
	struct ibv_wc wc[8];

	pair_open(&p, 1);
	assert_int_equal(ibv_query_device_ex(p.a.ctx, NULL, &d), 0);
	assert_true(d.cq_mod_caps.max_cq_count >= 4 && d.cq_mod_caps.max_cq_period >= 60000);
	assert_int_equal(moderate(p.a.scq, 4, 60000), 0);
	/* by the count, at once */
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	from = now_us();
	for (uint64_t i = 0; i < 3; i++)
		write_one(&p, i);
	assert_false(ready(&p.a, 0));
	write_one(&p, 3);
	assert_true(ready(&p.a, 0) || now_us() - from > 60000);
	event(&p.a, p.a.scq);
	assert_int_equal(ibv_poll_cq(p.a.scq, 8, wc), 4);
	/* by the clock */
	assert_int_equal(moderate(p.a.scq, 100, 30000), 0);
	from = now_us();
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	write_one(&p, 4);
	event(&p.a, p.a.scq); /* sleeps */
	assert_true(now_us() - from >= 30000);
	assert_int_equal(ibv_poll_cq(p.a.scq, 8, wc), 1);
	/* the descriptor tells, too, and has an event even if nothing came */
	from = now_us();
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	assert_true(ready(&p.a, 20000));
	assert_true(now_us() - from >= 29000);
	fcntl(p.a.channel->fd, F_SETFL, O_NONBLOCK);
	event(&p.a, p.a.scq);
	assert_int_equal(ibv_poll_cq(p.a.scq, 8, wc), 0);
	assert_int_equal(ibv_get_cq_event(p.a.channel, &(struct ibv_cq *){ NULL }, &(void *){ NULL }), -1);
	assert_int_equal(errno, EAGAIN);
	/* one that comes late, when the clock is spent on the other queue, comes at once */
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.rcq, 0), 0);
	assert_true(ready(&p.a, 20000));
	event(&p.a, p.a.rcq);
	assert_false(ready(&p.a, 0));
	write_one(&p, 5);
	assert_true(ready(&p.a, 0));
	event(&p.a, p.a.scq);
	assert_int_equal(ibv_poll_cq(p.a.scq, 8, wc), 1);
	/* and off again */
	assert_int_equal(moderate(p.a.scq, 0, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	write_one(&p, 6);
	assert_true(ready(&p.a, 0));
	event(&p.a, p.a.scq);
	pair_close(&p);
}

/* Two queues of one channel, each with its own clock: the later one's is not forgotten. */
static void test_moderation_of_two(void **state)
{
	struct ibv_cq *first, *second;
	void *context;
	struct pair p;

	pair_open(&p, 1);
	assert_int_equal(moderate(p.a.scq, 100, 10000), 0);
	assert_int_equal(moderate(p.a.rcq, 100, 40000), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.rcq, 0), 0);
	die_unless(!post_recv(&p.a, 0, 1, 0, 8));
	write_one(&p, 2);
	die_unless(!post(&p.b, 0, 3, IBV_WR_SEND, 0, 8, 0, SIG));
	die_unless(!ibv_get_cq_event(p.a.channel, &first, &context));
	die_unless(!ibv_get_cq_event(p.a.channel, &second, &context));
	assert_ptr_equal(first, p.a.scq);
	assert_ptr_equal(second, p.a.rcq);
	ibv_ack_cq_events(first, 1);
	ibv_ack_cq_events(second, 1);
	pair_close(&p);
}

/* ---- the first message ---- */

static void test_established(void **state)
{
	struct pollfd f = { .events = POLLIN };
	struct ibv_async_event ev;
	struct pair p;

	end_open(&p.a, 1, SIZE);
	end_open(&p.b, 1, SIZE);
	end_connect_to(&p.a, &p.b.me);
	p.b.other = p.a.me;
	qp_to_init(p.b.qp[0], ALL_ACCESS);
	qp_to_rtr(p.b.qp[0], p.a.me.qpn[0], &p.b);
	f.fd = p.b.ctx->async_fd;
	assert_int_equal(poll(&f, 1, 0), 0);
	write_one(&p, 1);
	good_wc(p.a.scq, 1);
	ev = next_event(p.b.ctx);
	assert_int_equal(ev.event_type, IBV_EVENT_COMM_EST);
	assert_ptr_equal(ev.element.qp, p.b.qp[0]);
	write_one(&p, 2);
	good_wc(p.a.scq, 2);
	assert_int_equal(poll(&f, 1, 0), 0);
	pair_close(&p);
	pair_open(&p, 1); /* nobody in RTR: nothing to tell */
	write_one(&p, 3);
	good_wc(p.a.scq, 3);
	f.fd = p.b.ctx->async_fd;
	assert_int_equal(poll(&f, 1, 0), 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resize),		    cmocka_unit_test(test_resize_under_load),
		cmocka_unit_test(test_overrun),		    cmocka_unit_test(test_overrun_of_receives),
		cmocka_unit_test(test_overrun_ignored),	    cmocka_unit_test(test_moderation),
		cmocka_unit_test(test_moderation_of_two),   cmocka_unit_test(test_established),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
