/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What softrdma reaches: RDMA WRITEs of a size into another process that sleeps meanwhile.
 * Usage: softrdma_write [BYTES]. Prints one line, two numbers: MB/s (10^6 bytes) and microseconds, of the median write from its post to
 * its completion. To be compared with softrdma_copy of the same size, in the same run.
 */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_time.h"

#define WRITES_MAX 4001

struct name {
	uint64_t addr;
	uint32_t rkey, qpn, lid;
};

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
	struct name other;
};

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "softrdma_write: %s failed\n", what);
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
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1 } };
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

static double one(struct side *s, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, (uint32_t)size, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	double start = bench_now();
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = s->other.addr;
	wr.wr.rdma.rkey = s->other.rkey;
	must(!ibv_post_send(s->qp, &wr, &bad), "post");
	while (!ibv_poll_cq(s->cq, 1, &wc))
		;
	must(wc.status == IBV_WC_SUCCESS, "write");
	return bench_now() - start;
}

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoull(argv[1], NULL, 0) : 1u << 20;
	size_t n = bench_repeats(size, WRITES_MAX), i;
	static double took[WRITES_MAX];
	struct side s;
	int sock[2];
	double median;
	char byte;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock), "socketpair");
	if (!fork()) {
		close(sock[0]);
		open_side(&s, size, sock[1]);
		must(write(sock[1], "", 1) == 1, "ready");
		return read(sock[1], &byte, 1) < 0;
	}
	close(sock[1]);
	open_side(&s, size, sock[0]);
	must(read(sock[0], &byte, 1) == 1, "ready");
	one(&s, size);
	for (i = 0; i < n; i++)
		took[i] = one(&s, size);
	median = bench_median(took, n);
	printf("%.1f %.3f\n", (double)size / median / 1e6, median * 1e6);
	return 0;
}
