/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many processes, each connected to each: the argument (else 16) processes with a reliable queue pair towards every other one. In a round
 * each sends a message to all and waits for theirs, and all but the first add one to a counter of the first. Every message has to come
 * once and in its round, with its bytes; in the end the counter is exact. A peer may be one round ahead, never two.
 */
#include "feature.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PROCESSES_MAX 64u
#define WORDS 32u
#define AHEAD 2u /* rounds of a peer that may be here unread */
#define ATOMIC UINT64_MAX

struct message {
	uint64_t from, round, last, words[WORDS];
};

struct shared { /* for the time of the set-up */
	pthread_barrier_t barrier;
	uint32_t qpn[PROCESSES_MAX][PROCESSES_MAX];
	uint16_t lid[PROCESSES_MAX];
	uint64_t counter;
	uint32_t rkey;
} *shared;

static struct memory {
	uint64_t counter, fetched;
	struct message out[AHEAD], in[PROCESSES_MAX][AHEAD];
} memory __attribute__((aligned(4096)));

static struct ibv_qp *qps[PROCESSES_MAX];
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static uint64_t received[PROCESSES_MAX]; /* rounds of each peer */
static uint32_t count = 16, self;
static uint64_t last_round = UINT64_MAX;

static void receive_post(uint32_t peer, uint64_t round)
{
	struct ibv_sge sge = { (uintptr_t)&memory.in[peer][round % AHEAD], sizeof(struct message), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = peer, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(qps[peer], &wr, &bad) == 0);
}

static void make(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_port_attr port;
	struct ibv_pd *pd;

	if (!context)
		feature_skip("no RDMA device");
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, (int)(8 * count), NULL, channel, 0);
	mr = ibv_reg_mr(pd, &memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(cq && mr && !ibv_query_port(context, 1, &port));
	shared->lid[self] = port.lid;
	for (uint32_t peer = 0; peer < count; peer++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, AHEAD, 1, 1, 0 } };

		if (peer == self)
			continue;
		qps[peer] = ibv_create_qp(pd, &init);
		CHECK(qps[peer]);
		shared->qpn[self][peer] = qps[peer]->qp_num;
	}
	if (!self) {
		shared->counter = (uintptr_t)&memory.counter;
		shared->rkey = mr->rkey;
	}
}

static void join(uint32_t peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = shared->qpn[peer][self],
				   .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				   .ah_attr = { .dlid = shared->lid[peer], .port_num = 1 } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	CHECK(!ibv_modify_qp(qps[peer], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	for (uint64_t round = 0; round < AHEAD; round++)
		receive_post(peer, round);
	CHECK(!ibv_modify_qp(qps[peer], &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(qps[peer], &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void send_to(uint32_t peer, uint64_t round)
{
	struct ibv_sge sge = { (uintptr_t)&memory.out[round % AHEAD], sizeof(struct message), mr->lkey };
	struct ibv_send_wr wr = { .wr_id = round, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(qps[peer], &wr, &bad) == 0);
}

static void count_up(void)
{
	struct ibv_sge sge = { (uintptr_t)&memory.fetched, sizeof(memory.fetched), mr->lkey };
	struct ibv_send_wr wr = { .wr_id = ATOMIC, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge, .num_sge = 1,
				  .wr.atomic = { .remote_addr = shared->counter, .compare_add = 1, .rkey = shared->rkey } };
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
}

static void take(uint32_t peer)
{
	struct message *m = &memory.in[peer][received[peer] % AHEAD];

	CHECK(m->from == peer && m->round == received[peer]);
	CHECK(pattern_holds(m->words, sizeof(m->words), (m->from << 32) + m->round));
	if (m->last)
		last_round = m->round;
	memset(m, 0, sizeof(*m));
	received[peer]++;
	receive_post(peer, received[peer] + AHEAD - 1);
}

static void wait_event(void)
{
	struct ibv_cq *which;
	void *context;

	CHECK(ibv_get_cq_event(channel, &which, &context) == 0 && which == cq);
	ibv_ack_cq_events(cq, 1);
}

/* Until @sends have completed, and all peers' messages of @round are here. */
static void gather(uint64_t round, uint32_t sends)
{
	uint32_t missing = 0;
	struct ibv_wc wc;

	for (uint32_t peer = 0; peer < count; peer++)
		missing += peer != self && received[peer] == round;
	while (sends || missing) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		for (int n = 0; (n = ibv_poll_cq(cq, 1, &wc)) != 0;) {
			CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV) {
				missing -= received[wc.wr_id] == round;
				take((uint32_t)wc.wr_id);
			} else {
				CHECK(wc.wr_id == (wc.opcode == IBV_WC_FETCH_ADD ? ATOMIC : round));
				sends--;
			}
		}
		if (sends || missing)
			wait_event();
	}
}

/* True: there is a next one. */
static int one_round(uint64_t round)
{
	struct message *m = &memory.out[round % AHEAD];
	uint32_t sends = 0;

	*m = (struct message){ .from = self, .round = round, .last = !self && round && !feature_step() };
	pattern_fill(m->words, sizeof(m->words), (m->from << 32) + round);
	if (m->last)
		last_round = round;
	for (uint32_t i = 1; i < count; i++, sends++)
		send_to((self + i) % count, round);
	if (self) {
		count_up();
		sends++;
	}
	gather(round, sends);
	return round != last_round;
}

static void run(void)
{
	uint64_t round = 0;

	make();
	pthread_barrier_wait(&shared->barrier);
	for (uint32_t peer = 0; peer < count; peer++)
		if (peer != self)
			join(peer);
	pthread_barrier_wait(&shared->barrier);
	if (!self)
		feature_ready();
	while (one_round(round))
		round++;
	pthread_barrier_wait(&shared->barrier); /* nobody leaves while another's atomic is under way */
	if (!self)
		CHECK(memory.counter == (round + 1) * (count - 1));
}

static void *run_apart(void *arg)
{
	(void)arg;
	run();
	exit(0);
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attr;
	pthread_t thread;
	int status;

	if (argc > 1)
		count = (uint32_t)atoi(argv[1]);
	CHECK(count > 1 && count <= PROCESSES_MAX);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_barrier_init(&shared->barrier, &attr, count) == 0);
	for (uint32_t i = 1; i < count && !self; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid)
			self = i;
	}
	if (self % 2) { /* its first thread ends, and it lives on */
		CHECK(pthread_create(&thread, NULL, run_apart, NULL) == 0);
		pthread_exit(NULL);
	}
	run();
	for (uint32_t i = 1; i < count && !self; i++)
		CHECK(wait(&status) > 0 && status == 0);
	return 0;
}
