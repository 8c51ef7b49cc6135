/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program of doc/tutorial-debugging.md: four processes pass a token round a ring, over RDMA, and each checks that it comes in order.
 * One of them counts in too few bits, so it is right for 65,535 rounds.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 4

struct rank {
	uint32_t qpn_from, qpn_to; /* towards the rank before, and the next one */
	uint16_t lid;
	union ibv_gid gid;
};

static struct shared {
	pthread_barrier_t barrier; /* while the ring is made */
	struct rank ranks[RANKS];
	pid_t pids[RANKS];
} *shared;

static int self;
static uint64_t in, out; /* the token as it came, and as it goes on */
static struct ibv_mr *mr_in, *mr_out;
static struct ibv_qp *from, *to;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t qpn, const struct rank *peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .min_rnr_timer = 1,
				   .ah_attr = { .dlid = peer->lid, .port_num = 1, .is_global = 1, .grh = { .dgid = peer->gid, .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	must(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	must(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void make_ring(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 0 } };
	int before = (self + RANKS - 1) % RANKS, next = (self + 1) % RANKS;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_pd *pd;

	must(context != NULL, "no RDMA device");
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 8, NULL, channel, 0);
	mr_in = ibv_reg_mr(pd, &in, sizeof(in), IBV_ACCESS_LOCAL_WRITE);
	mr_out = ibv_reg_mr(pd, &out, sizeof(out), 0);
	from = ibv_create_qp(pd, &init);
	to = ibv_create_qp(pd, &init);
	must(mr_in && mr_out && from && to && !ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid), "RDMA objects");
	shared->ranks[self] = (struct rank){ from->qp_num, to->qp_num, port.lid, gid };
	pthread_barrier_wait(&shared->barrier);
	connect_to(from, shared->ranks[before].qpn_to, &shared->ranks[before]);
	connect_to(to, shared->ranks[next].qpn_from, &shared->ranks[next]);
	pthread_barrier_wait(&shared->barrier);
}

static void expect_token(void)
{
	struct ibv_sge sge = { (uintptr_t)&in, sizeof(in), mr_in->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(from, &wr, &bad), "ibv_post_recv");
}

static void pass_token(uint64_t token)
{
	struct ibv_sge sge = { (uintptr_t)&out, sizeof(out), mr_out->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 }, *bad;

	out = token;
	must(!ibv_post_send(to, &wr, &bad), "ibv_post_send");
}

/* Until @n completions have come. */
static void wait_for(int n)
{
	struct ibv_cq *which;
	struct ibv_wc wc;
	void *context;
	int got;

	while (n) {
		must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		while (n && (got = ibv_poll_cq(cq, 1, &wc))) {
			must(got == 1 && wc.status == IBV_WC_SUCCESS, "completion");
			n--;
		}
		if (n) {
			must(!ibv_get_cq_event(channel, &which, &context), "ibv_get_cq_event");
			ibv_ack_cq_events(cq, 1);
		}
	}
}

__attribute__((noinline)) static void wrong(int rank, uint64_t token, uint64_t expected)
{
	fprintf(stderr, "rank %d: token %llu came, %llu was expected\n", rank, (unsigned long long)token, (unsigned long long)expected);
	for (int other = 0; other < RANKS; other++) /* at once: no checkpoint is without the one that fails */
		if (other != rank)
			kill(shared->pids[other], SIGKILL);
	abort();
}

static void run(void)
{
	uint64_t round = 0;
	struct {
		uint32_t short_round : 16;
	} count = { 0 };

	expect_token();
	if (!self)
		pass_token(round);
	for (;;) {
		uint64_t expected = self == 2 ? count.short_round : round;

		wait_for(self || round ? 1 + (round > 0) : 2); /* the token, and that the last one was taken */
		if (in != expected)
			wrong(self, in, expected);
		round++;
		count.short_round++;
		expect_token();
		pass_token(self ? in : round);
	}
}

int main(void)
{
	pthread_barrierattr_t attr;
	int status;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shared != MAP_FAILED, "mmap");
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attr, RANKS);
	for (int rank = 0; rank < RANKS; rank++) {
		pid_t pid = fork();

		must(pid >= 0, "fork");
		if (pid) {
			shared->pids[rank] = pid;
			continue;
		}
		self = rank;
		make_ring();
		run();
	}
	wait(&status); /* one has failed: the others would wait for ever */
	for (int rank = 0; rank < RANKS; rank++)
		kill(shared->pids[rank], SIGTERM);
	return 1;
}
