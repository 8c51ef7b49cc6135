/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each fault, and what both ends see of it; flushing in order; receiver not ready; limits; illegal moves. Both
 * ends are in one process, in two contexts, except where one must sleep.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

struct pair {
	struct end a, b;
};

static void pair_open_with(struct pair *p, int access, int rnr_retry)
{
	end_open(&p->a, 1, SIZE);
	end_open(&p->b, 1, SIZE);
	p->b.access = access;
	p->a.rnr_retry = rnr_retry;
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

static void pair_open(struct pair *p)
{
	pair_open_with(p, ALL_ACCESS, 7);
}

static void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

static enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	die_unless(!ibv_query_qp(e->qp[0], &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void expect_async(struct end *e, enum ibv_event_type type)
{
	struct pollfd p = { .fd = e->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	die_unless(poll(&p, 1, 1000) == 1);
	die_unless(!ibv_get_async_event(e->ctx, &ev));
	die_unless(ev.event_type == type && ev.element.qp == e->qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!poll(&p, 1, 0));
}

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
	die_unless(state_of(&p->a) == IBV_QPS_ERR && state_of(&p->b) == IBV_QPS_ERR);
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

	pair_open_with(&p, access, 7);
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

	pair_open(&p);
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
	pair_open(&p);
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
	assert_null(ibv_reg_mr((pair_open(&p), p.a.pd), NULL, 4096, 0));
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

	pair_open(&p);
	s = (struct ibv_sge){ (uintptr_t)p.a.buf, 8, p.a.mr->lkey };
	wr.wr.atomic.remote_addr = p.b.me.addr + 4; /* not aligned */
	wr.wr.atomic.rkey = p.b.me.rkey;
	refused(&p, &wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	pair_close(&p);
	pair_open_with(&p, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 7);
	s = (struct ibv_sge){ (uintptr_t)p.a.buf, 8, p.a.mr->lkey };
	wr.wr.atomic.remote_addr = p.b.me.addr;
	wr.wr.atomic.rkey = p.b.me.rkey;
	refused(&p, &wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	pair_close(&p);
}

/* What is wrong with the requester's own memory is not the responder's business. */
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

static void test_local_faults(void **state)
{
	struct pair p;

	pair_open(&p);
	die_unless(!post_recv(&p.b, 0, 5, 0, 100));
	p.a.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 8, 0, 0));
	p.a.mr->lkey ^= 1 << 24;
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	die_unless(state_of(&p.a) == IBV_QPS_ERR && state_of(&p.b) == IBV_QPS_RTS);
	expect_empty(p.b.rcq);
	pair_close(&p);
	pair_open(&p);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE, SIZE - 4, 8, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}

static void test_receive_faults(void **state)
{
	struct pair p;

	pair_open(&p);
	die_unless(!post_recv(&p.b, 0, 5, 0, 10));
	die_unless(!post_recv(&p.b, 0, 6, 0, 10));
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 11, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_LEN_ERR);
	expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	die_unless(state_of(&p.b) == IBV_QPS_ERR);
	pair_close(&p);
	pair_open(&p);
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post_recv(&p.b, 0, 5, 0, 10));
	p.b.mr->lkey ^= 1 << 24;
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, 0));
	expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR);
	expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}

static void test_receiver_not_ready(void **state)
{
	struct pair p;
	int i;

	pair_open_with(&p, ALL_ACCESS, 0);
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	die_unless(!post(&p.a, 0, 2, IBV_WR_SEND, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);

	pair_open_with(&p, ALL_ACCESS, 3);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 10, 0, SIG));
	expect_empty(p.a.scq);
	expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	die_unless(state_of(&p.b) == IBV_QPS_RTS);
	pair_close(&p);

	/* With 7 it waits for ever; a receive lets exactly one go on, in order, without the sender's help. */
	pair_open_with(&p, ALL_ACCESS, 7);
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

static int event_waits(struct end *e, struct ibv_cq **ret_cq)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };
	void *context;

	die_unless(poll(&p, 1, 10000) == 1);
	return ibv_get_cq_event(e->channel, ret_cq, &context);
}

/* The clock of a send that waits makes the channel readable: then a queue that is armed has an event, though there is no completion. */
static void test_readable_for_nothing(void **state)
{
	struct ibv_cq *cq;
	struct pair p;

	if (getenv("END_HOSTS")) /* the other host keeps the request, and the clock */
		skip();
	pair_open(&p);
	die_unless(!fcntl(p.a.channel->fd, F_SETFL, O_NONBLOCK));
	die_unless(!post(&p.a, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	die_unless(event_waits(&p.a, &cq) == -1 && errno == EAGAIN);
	for (int i = 0; i < 5; i++) {
		die_unless(!ibv_req_notify_cq(p.a.scq, i % 2));
		die_unless(!event_waits(&p.a, &cq) && cq == p.a.scq);
		ibv_ack_cq_events(cq, 1);
		expect_empty(p.a.scq);
	}
	die_unless(!ibv_req_notify_cq(p.a.scq, 0));
	die_unless(!post_recv(&p.b, 0, 2, 0, 10));
	die_unless(!event_waits(&p.a, &cq) && cq == p.a.scq);
	ibv_ack_cq_events(cq, 1);
	good_wc(p.a.scq, 1);
	pair_close(&p);
}

static int sleeper(int sock)
{
	struct end e;
	struct ibv_cq *cq;
	void *context;

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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

static void test_limits(void **state)
{
	struct pair p;
	struct ibv_sge s[5];
	struct ibv_send_wr wr = { .sg_list = s, .num_sge = 5, .opcode = IBV_WR_SEND, .send_flags = SIG };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET };
	int i;

	pair_open(&p);
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
	assert_int_equal(state_of(&e), IBV_QPS_RESET);
	end_close(&e);
}

/* A peer that destroys its QP, or resets it, is gone for good, also when it comes back under the same number. */
static void test_peer_reset(void **state)
{
	struct pair p;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	pair_open(&p);
	die_unless(!post(&p.a, 0, 1, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	good_wc(p.a.scq, 1);
	die_unless(!ibv_modify_qp(p.b.qp[0], &a, IBV_QP_STATE));
	end_connect_to(&p.b, &p.a.me);
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
	pair_open(&p);
	die_unless(!ibv_destroy_qp(p.b.qp[0]));
	p.b.nqp = 0;
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	expect_wc(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remote_access),	    cmocka_unit_test(test_region_rights),
		cmocka_unit_test(test_no_resources), cmocka_unit_test(test_atomic_faults),	    cmocka_unit_test(test_local_faults),
		cmocka_unit_test(test_receive_faults),	    cmocka_unit_test(test_receiver_not_ready),
		cmocka_unit_test(test_sleeping_sender), cmocka_unit_test(test_readable_for_nothing),	    cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_limits),		    cmocka_unit_test(test_states),
		cmocka_unit_test(test_peer_reset),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
