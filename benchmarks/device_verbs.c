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

struct name {
	uint64_t addr;
	uint32_t rkey, qpn, lid;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
	struct name other;
};

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "softrdma: %s failed\n", what);
		_exit(1);
	}
}

static void connect_to(struct side *s, const struct name *me, int sock)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	must(write(sock, me, sizeof(*me)) == sizeof(*me) && read(sock, &s->other, sizeof(s->other)) == sizeof(*me),
	     "exchange of names");
	must(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = s->other.qpn,
				  .ah_attr = { .dlid = (uint16_t)s->other.lid, .port_num = 1 } };
	must(!ibv_modify_qp(s->qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	must(!ibv_modify_qp(s->qp, &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void open_side(struct side *s, size_t size, int sock)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = s->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_port_attr port;
	struct name me;

	must(pd != NULL, "opening the device");
	s->buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(s->buf != MAP_FAILED, "memory");
	memset(s->buf, 1, size);
	s->mr = ibv_reg_mr(pd, s->buf, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->cq = init.send_cq = init.recv_cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	must(s->mr && s->cq, "registration");
	s->qp = ibv_create_qp(pd, &init);
	must(s->qp && !ibv_query_port(ctx, 1, &port), "queue pair");
	me = (struct name){ (uintptr_t)s->buf, s->mr->rkey, s->qp->qp_num, port.lid };
	connect_to(s, &me, sock);
}

static struct ibv_wc completion(struct side *s)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(s->cq, 1, &wc))
		;
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return wc;
}

static void post(struct side *s, enum ibv_wr_opcode op, size_t from, size_t to, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + from, (uint32_t)size, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = s->other.addr + to;
	wr.wr.rdma.rkey = s->other.rkey;
	must(!ibv_post_send(s->qp, &wr, &bad), "post");
}

static void post_receive(struct side *s, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, (uint32_t)size, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(s->qp, &wr, &bad), "receive");
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
		while (!(completion(s).opcode & IBV_WC_RECV))
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

	for (i = 1; way != DEVICE_WRITE && i <= ROUNDS; i++) {
		half_round(s, way, size, 1, (char)i);
		half_round(s, way, size, 0, (char)i);
	}
	(void)!read(sock, &byte, 1);
}

static double ask(struct side *s, enum device_way way, size_t size)
{
	size_t n = way == DEVICE_WRITE ? bench_repeats(size, WRITES_MAX) : ROUNDS, i;
	double took[ROUNDS], start;

	for (i = 0; i < n; i++) {
		start = bench_now();
		if (way == DEVICE_WRITE) {
			post(s, IBV_WR_RDMA_WRITE, 0, 0, size);
			completion(s);
		} else {
			half_round(s, way, size, 0, (char)(i + 1));
			half_round(s, way, size, 1, (char)(i + 1));
		}
		took[i] = bench_now() - start;
	}
	return bench_median(took, n) / (way == DEVICE_WRITE ? 1 : 2);
}

double device_verbs(enum device_way way, size_t size)
{
	size_t room = way == DEVICE_WRITE ? size : 2 * size;
	struct side s;
	int sock[2];
	double median;
	char byte = 0;
	pid_t pid;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock), "socketpair");
	pid = fork();
	if (!pid)
		close(sock[0]);
	open_side(&s, room, sock[!pid]);
	memset(s.buf, 0, room);
	post_receive(&s, size);
	must(write(sock[!pid], &byte, 1) == 1 && read(sock[!pid], &byte, 1) == 1, "meeting");
	if (!pid) {
		answer(&s, way, size, sock[1]);
		_exit(0);
	}
	close(sock[1]);
	median = ask(&s, way, size);
	close(sock[0]);
	waitpid(pid, NULL, 0);
	ibv_close_device(s.ctx);
	munmap(s.buf, room);
	return median;
}
