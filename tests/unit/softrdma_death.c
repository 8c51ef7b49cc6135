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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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

		end_open(&e, 1, SIZE);
		end_connect(&e, sock);
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
	meet(sock);
	ctx = sr_context(e.ctx);
	peer = sr_qp_peer(ctx, sr_qp(e.qp[0]));
	d = sr_qp_find(peer->seg, e.other.qpn[0]);
	rlock_acquire(ctx, &d->rx_lock, ctx->self.token);
	c.qpn = d->qpn;
	c.number = d->number;
	c.seq = d->rx_seq;
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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

/* ---- a storm ---- */

/* Several peers at one context, its one pair of CQs and its memory; some die, the others must not notice. */

#define PEERS 4
#define STORM_KILLS 60
#define DEPTH 8
#define SLOT 16384u

/* One stream of numbered messages in each direction. */
struct stream {
	uint32_t sent, waiting, received;
};

static uint32_t length_of(uint32_t seq)
{
	static const uint32_t lengths[] = { 16, 3000, 64, SLOT, 4096, 5000 };

	return lengths[seq % 6];
}

static size_t slot_at(int q, uint32_t i, int receive)
{
	return ((size_t)q * 2 + (size_t)receive) * DEPTH * SLOT + (i % DEPTH) * SLOT;
}

static void stream_start(struct end *e, struct stream *s, int q)
{
	uint32_t i;

	*s = (struct stream){ 0 };
	for (i = 0; i < DEPTH; i++)
		die_unless(!post_recv(e, q, (uint64_t)q, slot_at(q, i, 1), SLOT));
}

static void stream_send(struct end *e, struct stream *s, int q)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + slot_at(q, s->sent, 0), length_of(s->sent), e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)q, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1,
				  .send_flags = SIG, .imm_data = s->sent };

	if (s->waiting == DEPTH)
		return;
	memset(e->buf + slot_at(q, s->sent, 0), (int)(s->sent & 0x7f) + 1, sge.length);
	die_unless(!post_wr(e, q, &wr));
	s->sent++;
	s->waiting++;
}

static void stream_receive(struct end *e, struct stream *s, int q, const struct ibv_wc *wc)
{
	char *at = e->buf + slot_at(q, s->received, 1);
	uint32_t i;

	die_unless(wc->imm_data == s->received && wc->byte_len == length_of(s->received));
	for (i = 0; i < wc->byte_len; i++)
		die_unless(at[i] == (char)((s->received & 0x7f) + 1));
	die_unless(!post_recv(e, q, (uint64_t)q, slot_at(q, s->received, 1), SLOT));
	s->received++;
}

static int storm_peer(int sock)
{
	struct stream s[2];
	struct ibv_wc wc;
	struct end e;
	int q;

	end_open(&e, 2, 4 * DEPTH * SLOT);
	e.timeout = 12;
	die_unless(write(sock, &e.me, sizeof(e.me)) == sizeof(e.me));
	die_unless(read(sock, &e.other, sizeof(e.other)) == sizeof(e.other));
	for (q = 0; q < 2; q++) {
		qp_to_init(e.qp[q], ALL_ACCESS);
		stream_start(&e, &s[q], q);
		qp_to_rts(e.qp[q], e.other.qpn[q], &e);
	}
	meet(sock);
	while (getppid() != 1) {
		for (q = 0; q < 2; q++)
			stream_send(&e, &s[q], q);
		while (ibv_poll_cq(e.scq, 1, &wc) > 0) {
			die_unless(wc.status == IBV_WC_SUCCESS);
			s[wc.wr_id].waiting--;
		}
		while (ibv_poll_cq(e.rcq, 1, &wc) > 0) {
			die_unless(wc.status == IBV_WC_SUCCESS);
			stream_receive(&e, &s[wc.wr_id], (int)wc.wr_id, &wc);
		}
	}
	return 1;
}

struct storm {
	struct end e;
	struct stream s[2 * PEERS];
	pid_t pid[PEERS];
	int sock[PEERS], dead[PEERS];
	unsigned long messages;
};

static void storm_connect(struct storm *st, int peer)
{
	struct end_name other, me = st->e.me;
	int q, mine;

	st->pid[peer] = spawn_end(storm_peer, &st->sock[peer]);
	die_unless(read(st->sock[peer], &other, sizeof(other)) == sizeof(other));
	for (q = 0; q < 2; q++) {
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		mine = peer * 2 + q;
		die_unless(!ibv_modify_qp(st->e.qp[mine], &reset, IBV_QP_STATE));
		me.qpn[q] = st->e.me.qpn[mine];
		qp_to_init(st->e.qp[mine], ALL_ACCESS);
		stream_start(&st->e, &st->s[mine], mine);
		qp_to_rts(st->e.qp[mine], other.qpn[q], &st->e);
	}
	die_unless(write(st->sock[peer], &me, sizeof(me)) == sizeof(me));
	meet(st->sock[peer]); /* it is ready before our first message, whose retries are few */
	st->dead[peer] = 0;
}

/* Moves all streams for a while; completions of the dead may be errors, those of the living never are. */
static void storm_run(struct storm *st, double seconds)
{
	double end = now() + seconds;
	struct ibv_wc wc;
	int q;

	while (now() < end) {
		for (q = 0; q < 2 * PEERS; q++)
			stream_send(&st->e, &st->s[q], q);
		while (ibv_poll_cq(st->e.scq, 1, &wc) > 0) {
			die_unless(wc.status == IBV_WC_SUCCESS || st->dead[wc.wr_id / 2]);
			st->s[wc.wr_id].waiting--;
		}
		while (ibv_poll_cq(st->e.rcq, 1, &wc) > 0) {
			die_unless(wc.status == IBV_WC_SUCCESS || st->dead[wc.wr_id / 2]);
			if (wc.status == IBV_WC_SUCCESS)
				stream_receive(&st->e, &st->s[wc.wr_id], (int)wc.wr_id, &wc);
			st->messages += wc.status == IBV_WC_SUCCESS;
		}
	}
}

static void test_storm(void **state)
{
	static struct storm st;
	int i, peer;

	end_open(&st.e, 2 * PEERS, 4 * PEERS * DEPTH * SLOT);
	st.e.timeout = 6;
	for (peer = 0; peer < PEERS; peer++)
		storm_connect(&st, peer);
	for (i = 0; i < STORM_KILLS; i++) {
		storm_run(&st, (double)(random() % 8000) * 1e-6);
		peer = (int)(random() % PEERS);
		st.dead[peer] = 1;
		kill(st.pid[peer], SIGKILL);
		storm_run(&st, (double)(random() % 4000) * 1e-6);
		assert_int_equal(reap(st.pid[peer]), -SIGKILL);
		close(st.sock[peer]);
		storm_connect(&st, peer);
	}
	storm_run(&st, 0.05);
	for (peer = 0; peer < PEERS; peer++) {
		kill(st.pid[peer], SIGKILL);
		assert_int_equal(reap(st.pid[peer]), -SIGKILL);
		close(st.sock[peer]);
	}
	assert_true(st.messages > 0);
	end_close(&st.e);
}

/* ---- what the dead leave in the directory ---- */

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
	end_open(&e, 1, SIZE);
	assert_int_equal(stat(path, &st), -1);
	end_close(&e);
	close(sock);
}

/* A child that inherits everything does not stand in for its dead parent. */
static int parent_of_a_child(int sock)
{
	struct end e;
	pid_t child;

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
	child = fork();
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
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
		cmocka_unit_test(test_child_of_the_dead), cmocka_unit_test(test_storm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
