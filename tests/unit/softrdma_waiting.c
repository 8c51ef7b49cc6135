/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A receiver that is not ready, that is not there, or goes away, and a sender that waits, polls or sleeps; the states of a queue pair. Both ends
 * are in one process, in two contexts, except where one must sleep.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

static void test_receiver_not_ready(void **state)
{
	struct pair p;
	int i;

	pair_open_with(&p, SIZE, ALL_ACCESS, 0);
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	die_unless(!post(&p.a, 0, 2, IBV_WR_SEND, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);

	pair_open_with(&p, SIZE, ALL_ACCESS, 3);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 10, 0, SIG));
	expect_empty(p.a.scq);
	expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	die_unless(qp_state_of(p.b.qp[0]) == IBV_QPS_RTS);
	pair_close(&p);

	/* With 7 it waits for ever; a receive lets exactly one go on, in order, without the sender's help. */
	pair_open_with(&p, SIZE, ALL_ACCESS, 7);
	for (i = 0; i < 5; i++) {
		p.a.buf[i * 100] = (char)('a' + i);
		die_unless(!post(&p.a, 0, (uint64_t)i, IBV_WR_SEND, (size_t)i * 100, 100, 0, SIG));
	}
	for (i = 0; i < 5; i++) {
		die_unless(!post_recv(&p.b, 0, 50 + (uint64_t)i, (size_t)i * 100, 100));
		good_wc(p.b.rcq, 50 + (uint64_t)i);
		die_unless(p.b.buf[i * 100] == 'a' + i);
	}
	for (i = 0; i < 5; i++)
		good_wc(p.a.scq, (uint64_t)i);
	expect_empty(p.a.scq);
	pair_close(&p);
}

/* @polled: between the two somebody else polls, and so runs the clock. */
static int event_waits(struct end *e, int polled, struct ibv_cq **ret_cq)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };
	void *context;

	die_unless(poll(&p, 1, 10000) == 1);
	if (polled)
		expect_empty(e->scq);
	return ibv_get_cq_event(e->channel, ret_cq, &context);
}

/* The clock of a send that waits makes the channel readable: then a queue that is armed has an event, though there is no completion. */
static void test_readable_for_nothing(void **state)
{
	struct ibv_cq *cq;
	struct pair p;

	if (getenv("END_HOSTS")) /* the other host keeps the request, and the clock */
		skip();
	pair_open(&p, SIZE);
	die_unless(!fcntl(p.a.channel->fd, F_SETFL, O_NONBLOCK));
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	die_unless(event_waits(&p.a, 0, &cq) == -1 && errno == EAGAIN);
	for (int i = 0; i < 10; i++) {
		die_unless(!ibv_req_notify_cq(p.a.scq, i % 2));
		die_unless(!event_waits(&p.a, i >= 5, &cq) && cq == p.a.scq);
		ibv_ack_cq_events(cq, 1);
		expect_empty(p.a.scq);
	}
	die_unless(!ibv_req_notify_cq(p.a.scq, 0));
	die_unless(!post_recv(&p.b, 0, 2, 0, 10));
	die_unless(!event_waits(&p.a, 0, &cq) && cq == p.a.scq);
	ibv_ack_cq_events(cq, 1);
	good_wc(p.a.scq, 1);
	pair_close(&p);
}

static int sleeper(int sock)
{
	struct end e;
	struct ibv_cq *cq;
	void *context;

	end_open_connected(&e, 1, SIZE, sock);
	die_unless(!ibv_req_notify_cq(e.scq, 0));
	fill(e.buf, 5000, 1);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 5000, 0, SIG));
	meet(sock);
	die_unless(!ibv_get_cq_event(e.channel, &cq, &context)); /* sleeps */
	ibv_ack_cq_events(cq, 1);
	good_wc(e.scq, 1);
	end_close(&e);
	return 0;
}

/* The sender sleeps; the receiver, by posting, fetches the message and wakes it. */
static void test_sleeping_sender(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(sleeper, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	meet(sock);
	die_unless(!post_recv(&e, 0, 1, 0, SIZE));
	expect_wc(e.rcq, 1, IBV_WC_SUCCESS);
	assert_true(filled(e.buf, 5000, 1));
	assert_int_equal(reap(pid), 0);
	end_close(&e);
	close(sock);
}

/* A peer that is never made ready: retries run out, also for a sender that only sleeps. */
static void test_unreachable(void **state)
{
	struct end a, b;
	struct ibv_cq *cq;
	void *context;

	end_open(&a, 1, SIZE);
	end_open(&b, 1, SIZE);
	end_connect_to(&a, &b.me);
	die_unless(!ibv_req_notify_cq(a.scq, 0));
	die_unless(!post(&a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	die_unless(!ibv_get_cq_event(a.channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	expect_wc(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	/* one that gets ready late is reached */
	end_open(&a, 1, SIZE);
	a.timeout = 14;
	end_connect_to(&a, &b.me);
	die_unless(!post(&a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	expect_empty(a.scq);
	end_connect_to(&b, &a.me);
	die_unless(!post_recv(&b, 0, 2, 0, 10));
	good_wc(b.rcq, 2);
	good_wc(a.scq, 1);
	end_close(&a);
	end_close(&b);
}

static void test_states(void **state)
{
	struct end e;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };

	end_open(&e, 1, SIZE);
	assert_int_equal(post(&e, 0, 1, IBV_WR_SEND, 0, 10, 0, 0), EINVAL);
	assert_int_equal(post_recv(&e, 0, 1, 0, 10), EINVAL);
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), EINVAL);
	a.qp_state = IBV_QPS_INIT;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), EINVAL);
	qp_to_init(e.qp[0], ALL_ACCESS);
	assert_int_equal(post_recv(&e, 0, 7, 0, 10), 0);
	qp_to_rts(e.qp[0], e.me.qpn[0], &e);
	/* drained: posted requests wait until it goes on */
	a.qp_state = IBV_QPS_SQD;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	assert_int_equal(post(&e, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG), 0);
	expect_empty(e.scq);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	good_wc(e.scq, 1);
	good_wc(e.rcq, 7);
	assert_int_equal(post_recv(&e, 0, 8, 0, 10), 0);
	a.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	expect_wc(e.rcq, 8, IBV_WC_WR_FLUSH_ERR);
	a.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	assert_int_equal(qp_state_of(e.qp[0]), IBV_QPS_RESET);
	end_close(&e);
}

/* A peer that destroys its QP, or resets it, is gone for good, also when it comes back under the same number. */
static void test_peer_reset(void **state)
{
	struct pair p;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	pair_open(&p, SIZE);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	good_wc(p.a.scq, 1);
	die_unless(!ibv_modify_qp(p.b.qp[0], &a, IBV_QP_STATE));
	end_connect_to(&p.b, &p.a.me);
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
	pair_open(&p, SIZE);
	die_unless(!ibv_destroy_qp(p.b.qp[0]));
	p.b.nqp = 0;
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receiver_not_ready), cmocka_unit_test(test_readable_for_nothing),
		cmocka_unit_test(test_sleeping_sender), cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_states), cmocka_unit_test(test_peer_reset),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
