/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs wrappers cost: one work request posted and its completion polled, on softrdma bare and under fermata, in turns; the
 * best round of each counts. A connection of one process to itself, 8 bytes, so that the device does the least.
 *
 *   verbs_calls [FERMATA_BIN]   runs itself under both, FERMATA_BIN: folder of fermata and softrdma-run
 *   verbs_calls --measure       prints one line of nanoseconds: write, send with receive, empty poll
 */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_self.h"

#define ROUNDS 40
#define PER_ROUND 5000
#define TURNS 5
#define KINDS 3
#define MARK_NS 25.0

static const char *const kinds[KINDS] = { "verbs-write-poll", "verbs-recv-send-poll", "verbs-poll-empty" };

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char buf[4096] __attribute__((aligned(4096)));

static void open_all(void)
{
	struct ibv_context *context = self_open();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	cq = ibv_create_cq(context, 128, NULL, NULL, 0);
	self_must(mr && cq, "objects");
	qp = self_qp(pd, cq, &(struct ibv_qp_cap){ 64, 64, 1, 1, 64 });
}

static void one_write(void)
{
	self_write(qp, mr, buf);
	self_poll(cq, 1);
}

static void one_message(void)
{
	struct ibv_sge from = { (uintptr_t)buf, 8, mr->lkey }, to = { (uintptr_t)buf + 64, 8, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	self_must(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	self_poll(cq, 2);
}

static void one_empty(void)
{
	struct ibv_wc wc;

	self_must(!ibv_poll_cq(cq, 1, &wc), "an empty queue");
}

static double best_ns(void (*one)(void))
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		double begin = self_now_ns(), took;

		for (int i = 0; i < PER_ROUND; i++)
			one();
		took = (self_now_ns() - begin) / PER_ROUND;
		best = took < best ? took : best;
	}
	return best;
}

static int measure(void)
{
	open_all();
	printf("%.2f %.2f %.2f\n", best_ns(one_write), best_ns(one_message), best_ns(one_empty));
	return 0;
}

/* Runs @command and keeps the least of each figure. */
static void turn(const char *command, double least[KINDS])
{
	FILE *f = popen(command, "r");
	double ns[KINDS];

	self_must(f && fscanf(f, "%lf %lf %lf", &ns[0], &ns[1], &ns[2]) == KINDS, command);
	for (int k = 0; k < KINDS; k++)
		least[k] = ns[k] < least[k] ? ns[k] : least[k];
	pclose(f);
}

int main(int argc, char **argv)
{
	double bare[KINDS] = { 1e18, 1e18, 1e18 }, under[KINDS] = { 1e18, 1e18, 1e18 };
	char self[PATH_MAX] = { 0 }, dir[PATH_MAX], bin[PATH_MAX + 16], command[3 * PATH_MAX];

	if (argc > 1 && strcmp(argv[1], "--measure") == 0)
		return measure();
	self_must(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "/proc/self/exe");
	strcpy(dir, self);
	snprintf(bin, sizeof(bin), "%s/../bin", dirname(dir));
	for (int i = 0; i < TURNS; i++) {
		snprintf(command, sizeof(command), "'%s/softrdma-run' '%s' --measure", argc > 1 ? argv[1] : bin, self);
		turn(command, bare);
		snprintf(command, sizeof(command), "'%s/fermata' launch --rdma soft -- '%s' --measure",
			 argc > 1 ? argv[1] : bin, self);
		turn(command, under);
	}
	for (int k = 0; k < KINDS; k++) {
		double more = under[k] - bare[k];

		printf("%s +%.1f ns, %.2f x bare (%.1f -> %.1f ns)", kinds[k], more, under[k] / bare[k], bare[k], under[k]);
		printf(k == 0 ? " (less than %.0f ns, %s)\n" : "\n", MARK_NS, more < MARK_NS ? "ok" : "short");
	}
	return 0;
}
