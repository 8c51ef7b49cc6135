/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that end by SIGKILL at any moment: the survivor gets error completions, in time, and every lock back. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma/device.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define SIG IBV_SEND_SIGNALED
#define KILLS 80

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void step(struct end *e, unsigned int i)
{
	static const uint32_t sizes[] = { 1, 600, 4096, 9000, 200000 };
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						  IBV_WR_RDMA_READ };
	struct ibv_wc wc;

	while (ibv_poll_cq(e->rcq, 1, &wc) > 0)
		if (wc.status == IBV_WC_SUCCESS)
			post_recv(e, 0, 1, SIZE / 2, SIZE / 2);
	post(e, 0, 2, ops[i % 4], 0, sizes[i % 5], 0, SIG);
	while (ibv_poll_cq(e->scq, 1, &wc) > 0)
		;
}

/* Sends and receives without end. */
static int busy(int sock)
{
	struct end e;
	unsigned int i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 0; i < 32; i++)
		post_recv(&e, 0, 1, SIZE / 2, SIZE / 2);
	meet(sock);
	for (i = 0; getppid() != 1; i++)
		step(&e, i);
	return 1;
}

static void one_death(unsigned int delay_us)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(busy, &sock);
	double killed, end;
	unsigned int i, n = 0;
	struct ibv_wc wc;

	end_open(&e, 1, SIZE);
	e.timeout = 8; /* 1 ms, 4 times */
	end_connect(&e, sock);
	for (i = 0; i < 32; i++)
		post_recv(&e, 0, 1, SIZE / 2, SIZE / 2);
	meet(sock);
	end = now() + delay_us * 1e-6;
	for (i = 0; now() < end; i++)
		step(&e, i);
	kill(pid, SIGKILL);
	killed = now();
	/* All that is posted from now on fails, soon; the queue pair ends in error with all receives flushed. */
	for (;;) {
		post(&e, 0, 99, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG);
		wc.status = IBV_WC_SUCCESS;
		if (ibv_poll_cq(e.scq, 1, &wc) > 0 && wc.status != IBV_WC_SUCCESS)
			break;
		assert_true(now() < killed + 5);
	}
	assert_true(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
	while (ibv_poll_cq(e.rcq, 1, &wc) > 0)
		n += wc.status == IBV_WC_WR_FLUSH_ERR;
	assert_true(n <= 64);
	assert_int_equal(reap(pid), -SIGKILL);
	end_close(&e);
	close(sock);
}

static void test_death_of_peer(void **state)
{
	unsigned int i;

	srandom((unsigned int)getpid());
	for (i = 0; i < KILLS; i++)
		one_death((unsigned int)random() % 4000);
}

/* ---- a peer that dies inside a critical section ---- */

static int holder(int sock)
{
	struct end e;
	struct sr_qp *qp;
	struct sr_peer *peer;
	struct sr_shm_qp *d;
	struct sr_context *ctx;
	char which;

	end_open_connected(&e, 1, SIZE, sock);
	ctx = sr_context(e.ctx);
	qp = sr_qp(e.qp[0]);
	peer = sr_qp_peer(ctx, qp);
	d = sr_qp_find(peer->seg, e.other.qpn[0]);
	die_unless(d);
	die_unless(read(sock, &which, 1) == 1);
	switch (which) {
	case 0:
		rlock_acquire(ctx, &d->rx_lock, ctx->self.token);
		break;
	case 1:
		rlock_acquire(ctx, &d->sq_lock, ctx->self.token);
		break;
	case 2:
		rlock_acquire(ctx, &((struct sr_shm_cq *)sr_at(peer->seg, d->recv_cq))->lock, ctx->self.token);
		break;
	case 3:
		rlock_acquire(ctx, &peer->seg->async_lock, ctx->self.token);
		break;
	}
	die_unless(write(sock, &which, 1) == 1);
	for (;;)
		pause();
}

static void test_locks_of_the_dead(void **state)
{
	char which, byte;

	for (which = 0; which < 4; which++) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
		struct end e;
		int sock;
		pid_t pid = spawn_end(holder, &sock);
		double start;

		end_open_connected(&e, 1, SIZE, sock);
		die_unless(!post_recv(&e, 0, 1, 0, 10));
		die_unless(write(sock, &which, 1) == 1 && read(sock, &byte, 1) == 1);
		kill(pid, SIGKILL);
		assert_int_equal(reap(pid), -SIGKILL);
		start = now();
		if (which == 3)
			sr_async_push(sr_context(e.ctx), sr_context(e.ctx)->seg, IBV_EVENT_COMM_EST, 0);
		assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
		expect_wc(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
		end_close(&e);
		assert_true(now() - start < 2);
		close(sock);
	}
}

/* A dead executor's half-done completion is neither lost nor doubled. */
static int half(int sock, int before_tail)
{
	struct end e;
	struct sr_context *ctx;
	struct sr_peer *peer;
	struct sr_shm_qp *d;
	struct sr_cqe c = { .wr_id = 1, .opcode = IBV_WC_RECV, .rq_slot = 1 };
	struct sr_shm_cq *cq;
	uint32_t tail;

	end_open_connected(&e, 1, SIZE, sock);
	meet(sock);
	ctx = sr_context(e.ctx);
	peer = sr_qp_peer(ctx, sr_qp(e.qp[0]));
	d = sr_qp_find(peer->seg, e.other.qpn[0]);
	rlock_acquire(ctx, &d->rx_lock, ctx->self.token);
	c.qpn = d->qpn;
	c.number = d->number;
	c.seq = ((struct sr_shm_rq *)sr_at(peer->seg, d->rq))->head;
	cq = sr_at(peer->seg, d->recv_cq);
	if (before_tail) {
		rlock_acquire(ctx, &cq->lock, ctx->self.token);
		tail = cq->tail;
		memcpy(sr_cq_slot(cq, tail), &c, offsetof(struct sr_cqe, position));
		sr_cq_slot(cq, tail)->position = tail + 1;
	} else {
		sr_cq_push(ctx, peer, cq, &c, 0);
	}
	raise(SIGKILL);
	return 1;
}

static int half_behind_push(int sock)
{
	return half(sock, 0);
}

static int half_before_tail(int sock)
{
	return half(sock, 1);
}

static void half_a_completion(int (*peer)(int sock))
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct end e;
	int sock;
	pid_t pid = spawn_end(peer, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	die_unless(!post_recv(&e, 0, 1, 0, 10));
	die_unless(!post_recv(&e, 0, 2, 0, 10));
	meet(sock);
	assert_int_equal(reap(pid), -SIGKILL);
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	expect_wc(e.rcq, 1, IBV_WC_SUCCESS);
	expect_wc(e.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.rcq);
	end_close(&e);
	close(sock);
}

static void test_half_a_completion(void **state)
{
	half_a_completion(half_behind_push);
	half_a_completion(half_before_tail);
}

/* ---- what the dead leave in the directory ---- */

#define SWEEPS 1000

static int just_open(int sock)
{
	struct end e;

	end_open(&e, 1, SIZE);
	die_unless(write(sock, &e.me, sizeof(e.me)) == sizeof(e.me));
	for (;;)
		pause();
}

static void segment_path(char *path, uint32_t qpn)
{
	struct end e;

	end_open(&e, 0, 4096);
	sprintf(path, "%s/ctx-%03x", sr_context(e.ctx)->dir, qpn >> SR_QP_BITS);
	end_close(&e);
}

static void test_files_of_the_dead(void **state)
{
	struct end_name name;
	char path[200];
	struct stat st;
	struct end e;
	int sock;
	pid_t pid = spawn_end(just_open, &sock);

	die_unless(read(sock, &name, sizeof(name)) == sizeof(name));
	segment_path(path, name.qpn[0]);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	kill(pid, SIGKILL);
	assert_int_equal(reap(pid), -SIGKILL);
	/* Somebody who reads its maps in /proc may hold its memory, and with that its file, a moment longer than it is there. */
	for (int i = 0; i < SWEEPS && stat(path, &st) == 0; i++) {
		end_open(&e, 1, SIZE);
		end_close(&e);
	}
	assert_int_equal(stat(path, &st), -1);
	close(sock);
}

/* A child that inherits everything does not stand in for its dead parent. */
static int parent_of_a_child(int sock)
{
	struct end e;
	pid_t child;

	end_open_connected(&e, 1, SIZE, sock);
	child = end_fork();
	if (!child)
		for (;;)
			pause();
	die_unless(write(sock, &child, sizeof(child)) == sizeof(child));
	for (;;)
		pause();
}

static void test_child_of_the_dead(void **state)
{
	struct end e;
	int sock;
	pid_t child, pid = spawn_end(parent_of_a_child, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	die_unless(read(sock, &child, sizeof(child)) == sizeof(child));
	kill(pid, SIGKILL);
	assert_int_equal(reap(pid), -SIGKILL);
	die_unless(!post(&e, 0, 1, IBV_WR_RDMA_WRITE, 0, 10, 0, SIG));
	expect_wc(e.scq, 1, IBV_WC_RETRY_EXC_ERR);
	kill(child, SIGKILL);
	end_close(&e);
	close(sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death_of_peer),	  cmocka_unit_test(test_locks_of_the_dead),
		cmocka_unit_test(test_half_a_completion), cmocka_unit_test(test_files_of_the_dead),
		cmocka_unit_test(test_child_of_the_dead),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
