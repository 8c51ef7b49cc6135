/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What nobody is told of. In each round the client sends three things at once: a SEND that the server has a receive for, an unsignalled
 * RDMA WRITE (or READ, in turns) of much data, and a SEND that waits for its receive. The server posts that when the data of the WRITE
 * has come, so there are long moments in which every completion that can come has come, and data is still under way. Both
 * check every byte.
 *
 *   verbs_tail [-p port] [-n rounds] [host]
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LENGTH (4u << 20)
#define WORDS (LENGTH / 8)
#define READ_TAKES_NS 20000000

struct place {
	uint64_t landing, source;
	uint32_t qpn, rkey;
	uint16_t lid, reserved[3];
} mine, other;

static uint64_t *landing, *source, *fetch;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static const char *host;
static int port = 18515, rounds = 100;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("wrong: %s\n", what);
	exit(1);
}

static void fill(uint64_t *at, uint64_t round)
{
	for (uint32_t i = 0; i < WORDS; i++)
		at[i] = (round + 1) * 0x9e3779b97f4a7c15u + i;
}

static int holds_from(const uint64_t *at, uint32_t i, uint64_t round)
{
	for (; i < WORDS; i++)
		if (((const volatile uint64_t *)at)[i] != (round + 1) * 0x9e3779b97f4a7c15u + i)
			return 0;
	return 1;
}

static int holds(const uint64_t *at, uint64_t round)
{
	return holds_from(at, 0, round);
}

static void nap(long ns)
{
	struct timespec ts = { 0, ns };

	nanosleep(&ts, NULL);
}

static int meet(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1, l;

	if (host) {
		must(inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &a.sin_addr) == 1, "address");
		must(!connect(s, (struct sockaddr *)&a, sizeof(a)), "connect");
		return s;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	must(!bind(s, (struct sockaddr *)&a, sizeof(a)) && !listen(s, 1), "listen");
	l = s;
	s = accept(l, NULL, NULL);
	close(l);
	must(s >= 0, "accept");
	return s;
}

static void make(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_port_attr p;
	struct ibv_pd *pd;

	if (!context)
		exit(77);
	pd = ibv_alloc_pd(context);
	landing = aligned_alloc(4096, 3 * LENGTH);
	source = landing + WORDS;
	fetch = source + WORDS;
	memset(landing, 0, 3 * LENGTH);
	mr = ibv_reg_mr(pd, landing, 3 * LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 32, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &init);
	must(mr && qp && !ibv_query_port(context, 1, &p), "objects");
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	mine = (struct place){ (uintptr_t)landing, (uintptr_t)source, qp->qp_num, mr->rkey, p.lid, { 0 } };
}

static void join(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.qpn,
				 .max_dest_rd_atomic = 4, .min_rnr_timer = 1, .ah_attr = { .dlid = other.lid, .port_num = 1 } };

	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void receive_post(uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad;

	must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void completion(uint64_t id)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	must(n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == id, "completion");
}

static void serve(uint64_t k)
{
	completion(2 * k);
	if (k & 1)
		nap(READ_TAKES_NS);
	else
		while (!holds_from(landing, WORDS - 1, k))
			nap(100000);
	receive_post(2 * k + 1);
	completion(2 * k + 1);
	if (!(k & 1))
		must(holds(landing, k), "data of a WRITE");
	fill(source, k + 1);
	receive_post(2 * k + 2);
}

static void ask(uint64_t k)
{
	struct ibv_sge sge = { (uintptr_t)(k & 1 ? fetch : source), LENGTH, mr->lkey };
	struct ibv_send_wr last = { .wr_id = 2 * k + 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr data = { .next = &last, .sg_list = &sge, .num_sge = 1, .opcode = k & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				    .wr.rdma = { k & 1 ? other.source : other.landing, other.rkey } };
	struct ibv_send_wr first = { .wr_id = 2 * k, .next = &data, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	fill(source, k);
	must(!ibv_post_send(qp, &first, &bad), "ibv_post_send");
	completion(2 * k);
	completion(2 * k + 1);
	if (k & 1)
		must(holds(fetch, k), "data of a READ");
}

int main(int argc, char **argv)
{
	int option, tcp;

	while ((option = getopt(argc, argv, "p:n:")) != -1)
		*(option == 'p' ? &port : &rounds) = atoi(optarg);
	host = argv[optind];
	make();
	if (!host)
		receive_post(0);
	tcp = meet();
	must(write(tcp, &mine, sizeof(mine)) == sizeof(mine) && recv(tcp, &other, sizeof(other), MSG_WAITALL) == sizeof(other), "meeting");
	join();
	must(write(tcp, "x", 1) == 1 && recv(tcp, &option, 1, MSG_WAITALL) == 1, "meeting");
	for (int k = 0; k < rounds; k++) {
		if (host)
			ask((uint64_t)k);
		else
			serve((uint64_t)k);
	}
	must(write(tcp, "x", 1) == 1 && recv(tcp, &option, 1, MSG_WAITALL) == 1, "parting");
	printf("%d rounds, all right\n", rounds);
	return 0;
}
