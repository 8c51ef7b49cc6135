/* SPDX-License-Identifier: BSD-2-Clause */
/* What RDMA on softrdma takes. Both processes open the device after the fork. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

#define WRITES_MAX 501
#define ROUNDS 2001

#define OTHERS_MAX 1000
#define QUEUE 64
#define LIST 32
#define RATE_WRITES 200000u
#define HUGE ((uintptr_t)2 << 20)

struct name {
	uint64_t addr;
	uint32_t rkey, lid;
	uint32_t qpn[OTHERS_MAX + 1];
};

struct side {
	struct ibv_context *ctx;
	struct ibv_qp *qp[OTHERS_MAX + 1];
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
	struct name other;
};

int device_huge;

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "softrdma: %s failed\n", what);
		_exit(1);
	}
}

static void connect_qp(struct side *s, unsigned int i)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

	must(!ibv_modify_qp(s->qp[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = s->other.qpn[i],
				  .max_dest_rd_atomic = 1,
				  .ah_attr = { .dlid = (uint16_t)s->other.lid, .port_num = 1 } };
	must(!ibv_modify_qp(s->qp[i], &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	must(!ibv_modify_qp(s->qp[i], &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void connect_to(struct side *s, const struct name *me, int sock, unsigned int others)
{
	unsigned int i;

	must(write(sock, me, sizeof(*me)) == sizeof(*me) &&
		     recv(sock, &s->other, sizeof(s->other), MSG_WAITALL) == sizeof(*me),
	     "exchange of names");
	for (i = 0; i <= others; i++)
		connect_qp(s, i);
}

/* @receives: that wait at a time. A queue no longer than needed: one that goes round in the caches is what a program has. */
static void open_side(struct side *s, size_t size, int sock, unsigned int others, unsigned int receives)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = s->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = QUEUE, .max_recv_wr = receives, .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_port_attr port;
	struct name me = { 0 };
	unsigned int i;

	must(pd != NULL, "opening the device");
	s->buf = mmap(NULL, size + (device_huge ? HUGE : 0), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(s->buf != MAP_FAILED, "memory");
	if (device_huge)
		s->buf = (char *)(((uintptr_t)s->buf + HUGE - 1) & ~(HUGE - 1));
	memset(s->buf, 1, size);
	s->mr = ibv_reg_mr(pd, s->buf, size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	s->channel = ibv_create_comp_channel(ctx);
	s->cq = init.send_cq = init.recv_cq = ibv_create_cq(ctx, (int)(receives + QUEUE), NULL, s->channel, 0);
	must(s->mr && s->cq, "registration");
	must(!ibv_query_port(ctx, 1, &port), "port");
	me.addr = (uintptr_t)s->buf;
	me.rkey = s->mr->rkey;
	me.lid = port.lid;
	for (i = 0; i <= others; i++) {
		s->qp[i] = ibv_create_qp(pd, &init);
		must(s->qp[i] != NULL, "queue pair");
		me.qpn[i] = s->qp[i]->qp_num;
	}
	connect_to(s, &me, sock, others);
}

static struct ibv_wc completion(struct side *s)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(s->cq, 1, &wc))
		;
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return wc;
}

/* As completion(), asleep until it comes. */
static struct ibv_wc completion_event(struct side *s)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_poll_cq(s->cq, 1, &wc)) {
		must(!ibv_req_notify_cq(s->cq, 0), "arming");
		if (ibv_poll_cq(s->cq, 1, &wc))
			break;
		must(!ibv_get_cq_event(s->channel, &cq, &context), "event");
		ibv_ack_cq_events(cq, 1);
	}
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return wc;
}

static void post(struct side *s, enum ibv_wr_opcode op, size_t from, size_t to, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + from, (uint32_t)size, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = s->other.addr + to;
	wr.wr.rdma.rkey = s->other.rkey;
	must(!ibv_post_send(s->qp[0], &wr, &bad), "post");
}

static void post_receive(struct side *s, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, (uint32_t)size, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(s->qp[0], &wr, &bad), "receive");
}

/* Waits for the other's message, or sends ours. The buffer's first half is written by the other. */
static void half_round(struct side *s, enum device_way way, size_t size, int receive, char round)
{
	volatile char *last = s->buf + size - 1;

	if (way == DEVICE_WRITE_PINGPONG && receive) {
		while (*last != round)
			;
	} else if (way == DEVICE_WRITE_PINGPONG) {
		s->buf[2 * size - 1] = round;
		post(s, IBV_WR_RDMA_WRITE, size, 0, size);
		completion(s);
	} else if (receive) {
		while (!((way == DEVICE_EVENT_PINGPONG ? completion_event(s) : completion(s)).opcode & IBV_WC_RECV))
			;
		post_receive(s, size);
	} else {
		post(s, IBV_WR_SEND, size, 0, size);
	}
}

static void answer(struct side *s, enum device_way way, size_t size, int sock)
{
	char byte;
	int i;

	for (i = 1; way >= DEVICE_WRITE_PINGPONG && i <= ROUNDS; i++) {
		half_round(s, way, size, 1, (char)i);
		half_round(s, way, size, 0, (char)i);
	}
	(void)!read(sock, &byte, 1);
}

static double ask(struct side *s, enum device_way way, size_t size)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
	size_t n = way <= DEVICE_SEND ? bench_repeats(size, WRITES_MAX) : ROUNDS, i;
	double took[ROUNDS], start;

	for (i = 0; i < n; i++) {
		start = bench_now();
		if (way <= DEVICE_SEND) {
			post(s, ops[way], 0, 0, size);
			completion(s);
		} else {
			half_round(s, way, size, 0, (char)(i + 1));
			half_round(s, way, size, 1, (char)(i + 1));
		}
		took[i] = bench_now() - start;
	}
	return bench_median(took, n) / (way <= DEVICE_SEND ? 1 : 2);
}

/* A queue kept full of writes, the last of each list signaled. */
static double rate(struct side *s, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, (uint32_t)size, s->mr->lkey };
	struct ibv_send_wr wr[LIST] = { 0 }, *bad;
	double start = bench_now();
	unsigned int i, waiting = 0;

	for (i = 0; i < LIST; i++) {
		wr[i] = (struct ibv_send_wr){ .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					      .next = i + 1 < LIST ? &wr[i + 1] : NULL };
		wr[i].wr.rdma.remote_addr = s->other.addr + i * 64;
		wr[i].wr.rdma.rkey = s->other.rkey;
	}
	wr[LIST - 1].send_flags = IBV_SEND_SIGNALED;
	for (i = 0; i < RATE_WRITES; i += LIST) {
		if (waiting == QUEUE / LIST) {
			completion(s);
			waiting--;
		}
		must(!ibv_post_send(s->qp[0], wr, &bad), "post");
		waiting++;
	}
	while (waiting--)
		completion(s);
	return (bench_now() - start) / RATE_WRITES;
}

double device_verbs(enum device_way way, size_t size, unsigned int others)
{
	size_t room = way <= DEVICE_SEND ? (device_huge ? (size + HUGE - 1) & ~(HUGE - 1) : size) : way == DEVICE_RATE ? LIST * 64 : 2 * size;
	int two = way >= DEVICE_WRITE_PINGPONG && way <= DEVICE_EVENT_PINGPONG;
	static struct side s;
	int sock[2];
	double median;
	char byte = 0;
	size_t i;
	pid_t pid;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock), "socketpair");
	pid = two ? device_fork() : fork();
	if (!pid)
		close(sock[0]);
	open_side(&s, room, sock[!pid], others, way == DEVICE_SEND ? WRITES_MAX : 4);
	memset(s.buf, 0, room);
	for (i = 0; i < (way == DEVICE_SEND ? bench_repeats(size, WRITES_MAX) : 4); i++)
		post_receive(&s, size);
	must(write(sock[!pid], &byte, 1) == 1 && read(sock[!pid], &byte, 1) == 1, "meeting");
	if (!pid) {
		answer(&s, way, size, sock[1]);
		_exit(0);
	}
	close(sock[1]);
	median = way == DEVICE_RATE ? rate(&s, size) : ask(&s, way, size);
	close(sock[0]);
	if (two)
		device_wait();
	else
		waitpid(pid, NULL, 0);
	ibv_close_device(s.ctx);
	munmap(s.buf, room);
	return median;
}
