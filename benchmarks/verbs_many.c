/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many objects: what one post and poll costs among so many queue pairs and regions, and what they cost a checkpoint and a restart.
 *
 *   verbs_many QUEUE_PAIRS REGIONS [idle | busy]
 *
 * Prints the seconds that making them took and the nanoseconds of a post and poll, each on another queue pair and region. With idle or busy it then says
 * "ready" and stays, with sends outstanding all the time or with none, until there is a file "finish"; then it prints the nanoseconds again. Of 0 queue pairs it opens no device, and measures nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_self.h"

#define ROUNDS 60
#define PER_ROUND 4096
#define NAP_NS 1000000

static unsigned int qp_count, mr_count;
static struct ibv_qp **qps;
static struct ibv_mr **mrs;
static struct ibv_cq *cq;
static char buf[4096] __attribute__((aligned(4096)));

static double make(void)
{
	double begin = self_now_ns();
	struct ibv_context *context;
	struct ibv_pd *pd;

	if (!qp_count)
		return 0;
	context = self_open();
	pd = ibv_alloc_pd(context);
	qps = calloc(qp_count, sizeof(*qps));
	mrs = calloc(mr_count, sizeof(*mrs));
	cq = ibv_create_cq(context, (int)qp_count + 1, NULL, NULL, 0);
	self_must(qps && mrs && cq, "objects");
	for (unsigned int i = 0; i < qp_count; i++)
		qps[i] = self_qp(pd, cq, &(struct ibv_qp_cap){ 8, 8, 1, 1, 0 });
	for (unsigned int i = 0; i < mr_count; i++) {
		mrs[i] = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		self_must(mrs[i] != NULL, "ibv_reg_mr");
	}
	return (self_now_ns() - begin) / 1e9;
}

static double best_ns(void)
{
	double best = 1e18;

	for (unsigned int round = 0; qp_count && round < ROUNDS; round++) {
		double begin = self_now_ns(), took;

		for (unsigned int i = 0; i < PER_ROUND; i++) {
			self_write(qps[i % qp_count], mrs[(round * PER_ROUND + i) % mr_count], buf);
			self_poll(cq, 1);
		}
		took = (self_now_ns() - begin) / PER_ROUND;
		best = took < best ? took : best;
	}
	return best;
}

static void stay(int busy)
{
	struct timespec nap = { 0, NAP_NS };

	while (access("finish", F_OK) != 0) {
		for (unsigned int i = 0; busy && i < qp_count; i++)
			self_write(qps[i], mrs[i % mr_count], buf);
		if (busy)
			self_poll(cq, (int)qp_count);
		else
			nanosleep(&nap, NULL);
	}
}

int main(int argc, char **argv)
{
	double seconds;

	self_must(argc > 2, "usage: verbs_many QUEUE_PAIRS REGIONS [idle | busy]");
	qp_count = (unsigned int)atoi(argv[1]);
	mr_count = (unsigned int)atoi(argv[2]);
	seconds = make();
	printf("%.6f %.2f\n", seconds, best_ns());
	if (argc > 3) {
		puts("ready");
		fflush(stdout);
		stay(!strcmp(argv[3], "busy"));
		printf("after %.2f\n", best_ns());
	}
	return 0;
}
