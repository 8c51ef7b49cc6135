/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with one thread that is in malloc nearly all of the time, and has a queue pair that is connected to itself. libc takes no locks in such a
 * program. Each round sends a message, churns malloc until it has come, and checks both; every 64 rounds a region and a queue of completions
 * are given back and made anew.
 *
 *   verbs_alone [-g gid index] [-n rounds]
 *
 * It prints "ready" when it has begun. As verbs_direct it also asks for direct verbs, again and again, and goes on with plain ones (verbs_direct.c); as verbs_hooked
 * the functions mmap and munmap are written over as it runs (verbs_hooked.c).
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/rdma/verbs_alone.h"

#pragma weak verbs_also

#define LENGTH 4096u
#define HELD 512u

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr, *passing_mr;
static struct ibv_cq *cq, *passing_cq;
static struct ibv_qp *qp;
static unsigned char *from, *to, *passing;
static int gid_index;

/* In the program that does not lie anywhere (verbs_fixed, as Debian's python3) these are its own calls of both. */
static void *(*volatile allocate)(size_t);
static void (*volatile give_back)(void *);

static struct held {
	unsigned char *at;
	size_t size;
} held[HELD];

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("wrong: %s\n", what);
	exit(1);
}

static void churn(void)
{
	static unsigned int seed = 1;
	unsigned int i;
	struct held *h;

	seed = seed * 1664525u + 1013904223u;
	i = (seed >> 8) % HELD;
	h = &held[i];
	if (h->at)
		must(h->at[0] == (unsigned char)i && h->at[h->size - 1] == (unsigned char)i, "memory");
	give_back(h->at);
	h->size = 1 + (seed >> 4) % ((seed >> 28) ? 200 : 30000);
	h->at = allocate(h->size);
	must(h->at != NULL, "malloc");
	memset(h->at, (int)i, h->size);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	must(list && list[0], "a device");
	context = ibv_open_device(list[0]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	from = malloc(LENGTH);
	to = malloc(LENGTH);
	passing = malloc(LENGTH);
	must(pd && from && to && passing, "memory");
	mr = ibv_reg_mr(pd, from, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "ibv_reg_mr");
}

static void connect_to_itself(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_port_attr port;
	union ibv_gid gid = { 0 };

	must(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, gid_index, &gid), "port");
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .dlid = port.lid, .port_num = 1, .is_global = !port.lid };
	a.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 1 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void build(void)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC,
	};
	struct ibv_mr *second;

	open_device();
	second = ibv_reg_mr(pd, to, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = cq ? ibv_create_qp(pd, &init) : NULL;
	must(second && qp, "ibv_create_qp");
	connect_to_itself();
	passing_mr = second;
}

static void exchange(unsigned long round, uint32_t to_key)
{
	struct ibv_sge out = { (uint64_t)(uintptr_t)from, LENGTH, mr->lkey }, in = { (uint64_t)(uintptr_t)to, LENGTH, to_key };
	struct ibv_recv_wr r = { .wr_id = 2 * round, .sg_list = &in, .num_sge = 1 }, *bad_r;
	struct ibv_send_wr s = { .wr_id = 2 * round + 1, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad_s;
	struct ibv_wc wc;
	int seen = 0, n;

	for (unsigned int i = 0; i < LENGTH; i++)
		from[i] = (unsigned char)(round * 7 + i * 13);
	must(!ibv_post_recv(qp, &r, &bad_r) && !ibv_post_send(qp, &s, &bad_s), "posting");
	while (seen != 3) {
		for (int i = 0; i < 50; i++)
			churn();
		n = ibv_poll_cq(cq, 1, &wc);
		must(n >= 0, "ibv_poll_cq");
		if (!n)
			continue;
		must(wc.status == IBV_WC_SUCCESS && wc.wr_id >> 1 == round, "completion");
		seen |= 1 << (wc.wr_id & 1);
	}
	must(memcmp(from, to, LENGTH) == 0, "data");
}

/* Objects of before and after a restart are made and given back alike. */
static void pass(void)
{
	if (passing_cq)
		must(!ibv_destroy_cq(passing_cq), "ibv_destroy_cq");
	must(!ibv_dereg_mr(passing_mr), "ibv_dereg_mr");
	passing_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	passing_mr = ibv_reg_mr(pd, to, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	must(passing_cq && passing_mr, "objects again");
}

int main(int argc, char **argv)
{
	unsigned long rounds = 1000;
	int c;

	while ((c = getopt(argc, argv, "g:n:")) != -1) {
		if (c == 'g')
			gid_index = atoi(optarg);
		else if (c == 'n')
			rounds = strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	allocate = malloc;
	give_back = free;
	build();
	if (verbs_also)
		verbs_also(context, pd, qp);
	printf("ready\n");
	fflush(stdout);
	for (unsigned long i = 0; i < rounds; i++) {
		exchange(i, passing_mr->lkey);
		if (i % 64 == 63)
			pass();
		if (i % 64 == 63 && verbs_also)
			verbs_also(context, pd, qp);
	}
	must(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dereg_mr(passing_mr), "the end of the objects");
	must((!passing_cq || !ibv_destroy_cq(passing_cq)) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "the end of the device");
	printf("%lu rounds\n", rounds);
	return 0;
}
