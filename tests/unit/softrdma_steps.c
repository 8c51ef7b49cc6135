/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Death between any two instructions. A child runs one call of the verbs step by step under ptrace and is killed after the
 * n-th instruction, for n from 1 on; then the survivor's queues must be exact: every receive completes once, in order,
 * with its data or flushed; no send completes twice; no lock, no event is lost for those who go on.
 *
 * Each scene is one call. A short run looks at every STRIDE-th instruction from a random one on; with
 * SOFTRDMA_STEPS=all at every one.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma/device.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"

#define STRIDE 97
#define STEPS_MAX 40000
#define SIZE (256u << 10)
#define SLOT 8192u
#define RECEIVES 6
#define RING 16 /* of the survivor's receive CQ: soon gone round */
#define SIG IBV_SEND_SIGNALED

enum scene_flag {
	SHARED = 1, /* receives come from a shared queue */
	KICK = 2,   /* the survivor's own send waits for a receive, and the child runs it */
	LAP = 4,    /* the completion queue goes round before anybody looks at the dead one's queue pair */
	BAD = 8,    /* the request is refused: the queue pair goes into error */
	ADD = 16,   /* a fetch-and-add */
	LIMIT = 32, /* the shared queue's limit is reached */
};

struct scene {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
	uint32_t len;
	unsigned int flags;
};

static const struct scene scenes[] = {
	{ "send in the completion", IBV_QPT_RC, IBV_WR_SEND, 20, 0 },
	{ "send, ring gone round", IBV_QPT_RC, IBV_WR_SEND, 20, LAP },
	{ "send by the bounce ring", IBV_QPT_RC, IBV_WR_SEND, 600, 0 },
	{ "long send", IBV_QPT_RC, IBV_WR_SEND, 6000, 0 },
	{ "write with immediate", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, 100, 0 },
	{ "unreliable connection", IBV_QPT_UC, IBV_WR_SEND, 20, 0 },
	{ "datagram", IBV_QPT_UD, IBV_WR_SEND, 100, LAP },
	{ "shared queue", IBV_QPT_RC, IBV_WR_SEND, 20, SHARED },
	{ "shared queue, ring gone round", IBV_QPT_RC, IBV_WR_SEND, 600, SHARED | LAP },
	{ "shared queue's limit", IBV_QPT_RC, IBV_WR_SEND, 20, SHARED | LIMIT },
	{ "datagram to a shared queue", IBV_QPT_UD, IBV_WR_SEND, 20, SHARED },
	{ "fetch and add", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, ADD },
	{ "a wrong key", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 20, BAD },
	{ "the survivor's send is run", IBV_QPT_RC, IBV_WR_SEND, 20, KICK },
	{ "the survivor's send is run, ring gone round", IBV_QPT_RC, IBV_WR_SEND, 20, KICK | LAP },
};

/* ---- the child ---- */

static const struct scene *scene;

static int victim(int sock)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = scene->op, .send_flags = SIG,
				  .imm_data = 7 };
	struct end e;

	end_open_as(&e, 1, SIZE, scene->type);
	end_connect(&e, sock);
	fill(e.buf, SLOT, 3);
	sge = (struct ibv_sge){ (uintptr_t)e.buf, scene->len, e.mr->lkey };
	wr.wr.rdma.remote_addr = e.other.addr + SIZE - SLOT;
	wr.wr.rdma.rkey = scene->flags & BAD ? e.other.rkey ^ 0x01000000 : e.other.rkey;
	if (scene->flags & ADD) {
		wr.wr.atomic.remote_addr = e.other.addr;
		wr.wr.atomic.rkey = e.other.rkey;
		wr.wr.atomic.compare_add = 1;
	}
	if (scene->type == IBV_QPT_UD) {
		struct ibv_ah_attr a = { .dlid = e.other.lid, .port_num = 1 };

		wr.wr.ud.ah = ibv_create_ah(e.pd, &a);
		wr.wr.ud.remote_qpn = e.other.qpn[0];
		wr.wr.ud.remote_qkey = END_QKEY;
	}
	/* Once whole, so that everything is mapped; a receive that is there is used up. */
	if (!(scene->flags & (BAD | KICK))) {
		die_unless(!post_wr(&e, 0, &wr));
		good_wc(e.scq, 1);
	}
	meet(sock);
	die_unless(!ptrace(PTRACE_TRACEME, 0, 0, 0));
	raise(SIGSTOP);
	if (scene->flags & KICK)
		post_recv(&e, 0, 1, 0, SLOT);
	else
		post_wr(&e, 0, &wr);
	raise(SIGSTOP);
	return 0;
}

/* 1: the call ended before. */
static int step_and_kill(pid_t pid, unsigned int steps)
{
	int status, ended = 0;

	die_unless(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	while (steps-- && !ended) {
		die_unless(!ptrace(PTRACE_SINGLESTEP, pid, 0, 0));
		die_unless(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
		ended = WSTOPSIG(status) == SIGSTOP;
	}
	kill(pid, SIGKILL);
	die_unless(reap(pid) == -SIGKILL);
	return ended;
}

/* ---- the survivor ---- */

struct survivor {
	struct end e; /* its QP 0 is the child's; 1 sends to 2, to see that others go on */
	struct ibv_srq *srq;
	uint32_t posted, succeeded, flushed, loops; /* receives of the child's QP; of the shared queue: of all */
	uint32_t seen;				    /* bits of the wr_ids that have completed */
	uint32_t sent;				    /* completions of our own send that the child runs */
};

static void check_wc(struct survivor *s, const struct ibv_wc *wc)
{
	int shared = scene->flags & SHARED, grh = scene->type == IBV_QPT_UD ? SR_GRH : 0;
	char *at = s->e.buf + wc->wr_id * SLOT;

	if (wc->qp_num == s->e.me.qpn[2] && wc->status == IBV_WC_SUCCESS) {
		s->loops++;
		if (!shared)
			return;
	}
	die_unless(wc->wr_id >= 1 && wc->wr_id <= s->posted && !(s->seen >> wc->wr_id & 1));
	s->seen |= 1u << wc->wr_id;
	if (wc->qp_num == s->e.me.qpn[2])
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		die_unless(wc->status == IBV_WC_WR_FLUSH_ERR);
		s->flushed++;
		return;
	}
	/* In order: none succeeds behind a flushed one. */
	die_unless(shared || (!s->flushed && wc->wr_id == s->succeeded + 1));
	s->succeeded++;
	if (scene->op == IBV_WR_SEND)
		die_unless(wc->byte_len == scene->len + (uint32_t)grh && filled(at + grh, scene->len, 3));
	else
		die_unless(wc->imm_data == 7 && filled(s->e.buf + SIZE - SLOT, scene->len, 3));
}

static void drain(struct survivor *s)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->e.rcq, 1, &wc) > 0)
		check_wc(s, &wc);
}

static void receives_post(struct survivor *s)
{
	uint32_t i;

	for (i = 1; i <= RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)s->e.buf + i * SLOT, SLOT, s->e.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		die_unless(!(s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->e.qp[0], &wr, &bad)));
	}
	s->posted = RECEIVES;
}

/* What the child ran of ours: it completes once. */
static void own_send_ended(struct survivor *s, const struct ibv_wc *wc)
{
	die_unless(wc->wr_id == 5 && (wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_RETRY_EXC_ERR));
	die_unless(!s->sent++);
}

/* Another's message, through the same queues; its event must come. */
static void other_message(struct survivor *s)
{
	uint32_t before = s->loops;
	struct ibv_wc wc;

	if (!s->srq)
		die_unless(!post_recv(&s->e, 2, 20, SLOT / 2, 64));
	die_unless(!post(&s->e, 1, 9, IBV_WR_SEND, 0, 64, 0, SIG));
	for (wc = next_wc(s->e.scq); wc.wr_id != 9; wc = next_wc(s->e.scq))
		own_send_ended(s, &wc);
	die_unless(wc.status == IBV_WC_SUCCESS);
	drain(s);
	die_unless(s->loops == before + 1);
}

static void event_comes(struct survivor *s)
{
	struct pollfd p = { .fd = s->e.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	die_unless(poll(&p, 1, 5000) == 1);
	die_unless(!ibv_get_cq_event(s->e.channel, &cq, &context) && cq == s->e.rcq);
	ibv_ack_cq_events(cq, 1);
}

static void survivor_open(struct survivor *s)
{
	struct ibv_srq_init_attr sia = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr init;
	int i;

	*s = (struct survivor){ 0 };
	end_open_as(&s->e, 0, SIZE, scene->type);
	s->e.timeout = 5;
	s->e.retry_cnt = 1;
	die_unless(!ibv_destroy_cq(s->e.rcq));
	s->e.rcq = ibv_create_cq(s->e.ctx, RING, NULL, s->e.channel, 0);
	s->srq = scene->flags & SHARED ? ibv_create_srq(s->e.pd, &sia) : NULL;
	die_unless(s->e.rcq && (s->srq || !(scene->flags & SHARED)));
	for (i = 0; i < 3; i++) {
		init = (struct ibv_qp_init_attr){ .send_cq = s->e.scq, .recv_cq = s->e.rcq, .srq = s->srq,
						  .qp_type = i ? IBV_QPT_RC : scene->type,
						  .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1,
							   .max_recv_sge = 1 } };
		s->e.qp[i] = ibv_create_qp(s->e.pd, &init);
		die_unless(s->e.qp[i]);
		s->e.me.qpn[i] = s->e.qp[i]->qp_num;
		qp_to_init(s->e.qp[i], ALL_ACCESS);
	}
	s->e.nqp = 3;
	s->e.other = s->e.me;
	qp_to_rts(s->e.qp[1], s->e.me.qpn[2], &s->e);
	qp_to_rts(s->e.qp[2], s->e.me.qpn[1], &s->e);
}

static void survivor_close(struct survivor *s)
{
	int i;

	for (i = 0; i < 3; i++)
		die_unless(!ibv_destroy_qp(s->e.qp[i]));
	s->e.nqp = 0;
	if (s->srq)
		die_unless(!ibv_destroy_srq(s->srq));
	end_close(&s->e);
}

static void meet_victim(struct survivor *s, int sock)
{
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES - 1 };
	struct end_name other;
	int i;

	die_unless(write(sock, &s->e.me, sizeof(s->e.me)) == sizeof(s->e.me));
	die_unless(recv(sock, &other, sizeof(other), MSG_WAITALL) == sizeof(other));
	receives_post(s);
	qp_to_rts(s->e.qp[0], other.qpn[0], &s->e);
	meet(sock);
	if (scene->flags & KICK)
		die_unless(!post(&s->e, 0, 5, IBV_WR_SEND, 0, scene->len, 0, SIG));
	meet(sock); /* its whole message has come */
	drain(s);
	/* The ring has been round: its next place has an old entry. */
	for (i = 0; !s->srq && i < RING + 3; i++)
		other_message(s);
	if (scene->flags & LIMIT)
		die_unless(!ibv_modify_srq(s->srq, &limit, IBV_SRQ_LIMIT));
	die_unless(!ibv_req_notify_cq(s->e.rcq, 0));
}

static void limit_is_told(struct survivor *s)
{
	struct pollfd p = { .fd = s->e.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	do {
		die_unless(poll(&p, 1, 5000) == 1);
		die_unless(!ibv_get_async_event(s->e.ctx, &ev));
		ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_SRQ_LIMIT_REACHED);
}

/* A flush that was begun goes on to its end by itself. */
static void flush_ends(struct survivor *s)
{
	struct pollfd p = { .events = 0 };
	int i;

	drain(s);
	for (i = 0; s->flushed && s->flushed + s->succeeded < RECEIVES; i++) {
		die_unless(i < 1000);
		poll(&p, 0, 1);
		drain(s);
	}
}

static void counter_is_exact(struct survivor *s)
{
	uint64_t before = *(volatile uint64_t *)s->e.buf;
	struct ibv_sge sge = { (uintptr_t)s->e.buf + 64, 8, s->e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = SIG };

	die_unless(before == 1 || before == 2);
	wr.wr.atomic.remote_addr = (uintptr_t)s->e.buf;
	wr.wr.atomic.rkey = s->e.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	die_unless(!post_wr(&s->e, 1, &wr));
	good_wc(s->e.scq, 9);
	die_unless(*(volatile uint64_t *)s->e.buf == before + 1);
}

static void check(struct survivor *s, int ended)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	uint32_t i, before = scene->flags & (BAD | KICK | ADD) ? 0 : 1;

	if (scene->flags & BAD)
		flush_ends(s);
	other_message(s);
	if (!(scene->flags & BAD))
		event_comes(s);
	if (scene->flags & LIMIT)
		limit_is_told(s);
	for (i = 0; (scene->flags & LAP) && !s->srq && i < 3 * RING; i++)
		other_message(s);
	if ((scene->flags & KICK) && !s->sent) {
		struct ibv_wc wc = next_wc(s->e.scq);

		own_send_ended(s, &wc);
	}
	if (scene->flags & ADD)
		counter_is_exact(s);
	die_unless(!ibv_modify_qp(s->e.qp[0], &a, IBV_QP_STATE));
	drain(s);
	/* The rest of a shared queue goes to the other. */
	while (s->srq && __builtin_popcount(s->seen) < RECEIVES)
		other_message(s);
	die_unless(__builtin_popcount(s->seen) == RECEIVES && s->succeeded >= before && s->succeeded <= before + 1);
	die_unless(!ended || (scene->flags & (BAD | KICK | ADD)) || s->succeeded == before + 1);
}

/* 1: the call ended before the @steps-th instruction. */
static int one_death(unsigned int steps)
{
	static struct survivor s;
	int sock, ended;
	pid_t pid = spawn_end(victim, &sock);

	survivor_open(&s);
	meet_victim(&s, sock);
	ended = step_and_kill(pid, steps);
	check(&s, ended);
	survivor_close(&s);
	close(sock);
	return ended;
}

/* Each death in a process of its own, so that the failure names its moment. */
static int death_checked(unsigned int steps)
{
	pid_t pid = fork();
	int status;

	die_unless(pid >= 0);
	if (!pid) {
		alarm(60);
		_exit(one_death(steps) ? 2 : 0);
	}
	status = reap(pid);
	if (status != 0 && status != 2)
		fail_msg("%s: killed after %u instructions: %d", scene->name, steps, status);
	return status;
}

static void test_scene(void **state)
{
	const char *want = getenv("SOFTRDMA_STEPS"), *at = getenv("SOFTRDMA_STEP");
	unsigned int stride = want && !strcmp(want, "all") ? 1 : STRIDE;
	unsigned int n = 1 + (unsigned int)random() % stride;

	scene = *state;
	if (at) {
		death_checked((unsigned int)atoi(at));
		return;
	}
	while (n < STEPS_MAX && !death_checked(n))
		n += stride;
	print_message("%s: %u instructions\n", scene->name, n);
	assert_true(n > 100 && n < STEPS_MAX);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[ARRAY_SIZE(scenes)];
	size_t i;

	srandom((unsigned int)getpid());
	for (i = 0; i < ARRAY_SIZE(scenes); i++)
		tests[i] = (struct CMUnitTest){ .name = scenes[i].name, .test_func = test_scene,
						.initial_state = (void *)&scenes[i] };
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
