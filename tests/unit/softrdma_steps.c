/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Death between any two instructions. A child runs one call of the verbs step by step under ptrace and is killed after the
 * n-th instruction, for n from 1 on; then the survivor's queues must be exact: every receive completes once, in order,
 * with its data or flushed; no send completes twice; no lock, no event is lost for those who go on.
 *
 * Each scene is one call. A short run looks at every STRIDE-th instruction from a random one on; with
 * SOFTRDMA_STEPS=all at every one.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma/device.h"
#include "softrdma_directory.h"
#include "softrdma_survivor.h"
#include "softrdma_util.h"

#define STRIDE 97
#define STEPS_MAX 40000
#define SIG IBV_SEND_SIGNALED

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
	{ "extended connection", IBV_QPT_XRC_SEND, IBV_WR_SEND, 20, SHARED | XRC },
	{ "extended connection by the bounce ring", IBV_QPT_XRC_SEND, IBV_WR_SEND, 600, SHARED | XRC },
	{ "write with immediate by an extended connection", IBV_QPT_XRC_SEND, IBV_WR_RDMA_WRITE_WITH_IMM, 100, SHARED | XRC },
	{ "extended connection, queue of another context", IBV_QPT_XRC_SEND, IBV_WR_SEND, 20, SHARED | XRC | AWAY },
	{ "fetch and add", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, ADD },
	{ "a wrong key", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 20, BAD },
	{ "the survivor's send is run", IBV_QPT_RC, IBV_WR_SEND, 20, KICK },
	{ "the survivor's send is run, ring gone round", IBV_QPT_RC, IBV_WR_SEND, 20, KICK | LAP },
};

/* ---- the child ---- */

const struct scene *scene;

static int victim(int sock)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = scene->op, .send_flags = SIG,
				  .imm_data = 7 };
	struct end e;

	end_open_as(&e, 1, SCENE_SIZE, scene->type);
	end_connect(&e, sock);
	fill(e.buf, SCENE_SLOT, 3);
	sge = (struct ibv_sge){ (uintptr_t)e.buf, scene->len, e.mr->lkey };
	wr.wr.rdma.remote_addr = e.other.addr + SCENE_SIZE - SCENE_SLOT;
	wr.wr.rdma.rkey = scene->flags & BAD ? e.other.rkey ^ 0x01000000 : e.other.rkey;
	if (scene->flags & XRC)
		wr.qp_type.xrc.remote_srqn = e.other.qpn[SRQ_NUMBER];
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
		post_recv(&e, 0, 1, 0, SCENE_SLOT);
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

/* ---- each death ---- */

/* 1: the call ended before the @steps-th instruction. */
static int one_death(unsigned int steps)
{
	static struct survivor s;
	int sock, ended;
	pid_t pid = spawn_end(victim, &sock);

	survivor_open(&s);
	survivor_meet(&s, sock);
	ended = step_and_kill(pid, steps);
	survivor_check(&s, ended);
	survivor_close(&s);
	close(sock);
	return ended;
}

/* Each death in a process of its own, so that the failure names its moment. */
static int death_checked(unsigned int steps)
{
	pid_t pid = end_fork();
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
