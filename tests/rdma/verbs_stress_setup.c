/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line, the device and its objects, and the connection over TCP by which the two sides tell each other of theirs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_stress.h"

struct connection connections[QPS_MAX];
struct worker workers[THREADS_MAX];
struct ibv_context *context;
struct ibv_pd *pd;
struct ibv_xrcd *domain;
struct ibv_mr *counter_mr;
uint64_t *counter;
uint32_t max_inline;
static int tcp;

void options_parse(int argc, char **argv, const char *letters)
{
	int c;

	while ((c = getopt(argc, argv, letters)) != -1) {
		switch (c) {
		case 'p': options.port = (uint16_t)atoi(optarg); break;
		case 'q': options.qps = (uint32_t)atoi(optarg); break;
		case 's': options.largest = (uint32_t)atoi(optarg); break;
		case 'n': options.count = (uint64_t)atoll(optarg); break;
		case 'd': options.depth = (uint32_t)atoi(optarg); break;
		case 'r': options.seed = (uint32_t)atoi(optarg); break;
		case 't': options.threads = (uint32_t)atoi(optarg); break;
		case 'T': options.timeout = (uint8_t)atoi(optarg); break;
		case 'e': options.events = 1; break;
		case 'E': options.events = options.epoll = 1; break;
		case 'g': options.gid = atoi(optarg); break;
		case '6': options.ipv6 = 1; break;
		case 'S': options.shared = 1; break;
		case 'x': options.shared = options.xrc = 1; break;
		case 'U': options.datagrams = 1; break;
		default: exit(2);
		}
	}
	options.host = optind < argc ? argv[optind] : NULL;
	if (!options.qps || options.qps > QPS_MAX || !options.largest || options.depth < 2 || !options.count || !options.threads ||
	    options.threads > THREADS_MAX || options.threads > options.qps)
		exit(2);
}

void tcp_connect(void)
{
	struct addrinfo hints = { .ai_family = options.ipv6 ? AF_INET6 : AF_INET, .ai_socktype = SOCK_STREAM,
				  .ai_flags = options.host ? 0 : AI_PASSIVE }, *found;
	int listener, one = 1;
	char port[8];

	snprintf(port, sizeof(port), "%u", options.port);
	must(!getaddrinfo(options.host, port, &hints, &found), "getaddrinfo");
	if (options.host) {
		tcp = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		must(!connect(tcp, found->ai_addr, found->ai_addrlen), "connect");
		freeaddrinfo(found);
		return;
	}
	listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	must(!bind(listener, found->ai_addr, found->ai_addrlen) && !listen(listener, 1), "listen");
	freeaddrinfo(found);
	tcp = accept(listener, NULL, NULL);
	must(tcp >= 0, "accept");
	close(listener);
}

void tcp_exchange(const void *mine, void *other, size_t size)
{
	size_t n = 0;
	ssize_t r;

	must(send(tcp, mine, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
	for (; n < size; n += (size_t)r) {
		r = recv(tcp, (char *)other + n, size - n, 0);
		if (r <= 0)
			wrong("the other side is gone: %s", r ? strerror(errno) : "end of file");
	}
}

void tcp_meet(void)
{
	char there, here = 'x';

	tcp_exchange(&here, &there, 1);
}

static void watch_channel(struct worker *w)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = w };

	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	must(fcntl(w->channel->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	must(w->epoll >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->channel->fd, &event) == 0, "epoll_ctl");
}

static void worker_create(struct worker *w)
{
	w->channel = options.events ? ibv_create_comp_channel(context) : NULL;
	if (options.epoll)
		watch_channel(w);
	for (uint32_t i = 0; i < CQS; i++) {
		w->cqs[i] = ibv_create_cq(context, (int)(options.qps * options.depth * 2), NULL, w->channel, 0);
		must(w->cqs[i] != NULL, "ibv_create_cq");
		if (options.events)
			must(!ibv_req_notify_cq(w->cqs[i], 0), "ibv_req_notify_cq");
	}
}

void device_open(void)
{
	struct ibv_xrcd_init_attr own = { .fd = -1, .oflags = O_CREAT, .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0]) {
		fprintf(stderr, "verbs_stress: no RDMA device\n");
		exit(77);
	}
	context = ibv_open_device(list[0]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	must(pd != NULL, "ibv_alloc_pd");
	domain = options.xrc ? ibv_open_xrcd(context, &own) : NULL;
	must(domain || !options.xrc, "ibv_open_xrcd");
	for (uint32_t i = 0; i < options.threads; i++) {
		worker_create(&workers[i]);
		if (options.shared)
			shared_create(&workers[i]);
	}
	counter = aligned_alloc(64, 64);
	memset(counter, 0, 64);
	counter_mr = ibv_reg_mr(pd, counter, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	must(counter_mr != NULL, "ibv_reg_mr");
}

void device_close(void)
{
	must(!domain || !ibv_close_xrcd(domain), "ibv_close_xrcd");
	must(!ibv_dereg_mr(counter_mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "ibv_close_device");
}

void sleep_for_event(void)
{
	struct ibv_cq *cq;
	void *cq_context;

	must(!ibv_get_cq_event(workers[0].channel, &cq, &cq_context), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

void receive_post(struct connection *c)
{
	uint64_t slot = c->receives_posted % options.depth;
	struct ibv_sge sge = { (uintptr_t)(c->receive + slot * options.largest), options.largest, c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = c->receives_posted, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(c->receive + slot * options.largest, 0, 64 < options.largest ? 64 : options.largest);
	must(!ibv_post_recv(c->qp, &wr, &bad), "ibv_post_recv");
	c->receives_posted++;
}

uint64_t landing_slots(void)
{
	return 2 * (uint64_t)options.depth; /* more than can be under way at once */
}

static void connection_memory(struct connection *c)
{
	size_t part = (size_t)options.depth * options.largest + 64, landings = landing_slots() * options.largest + 64;
	size_t all = 3 * part + 2 * landings;

	c->send = aligned_alloc(4096, (all + 4095) & ~(size_t)4095);
	must(c->send != NULL, "memory");
	memset(c->send, 0, all);
	c->receive = c->send + part;
	c->landing = c->receive + part;
	c->fetch = c->landing + landings;
	c->written = c->fetch + part;
	c->mr = ibv_reg_mr(pd, c->send, all, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(c->mr != NULL, "ibv_reg_mr");
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

static struct ibv_qp *target_create(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain };
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);

	must(qp != NULL, "ibv_create_qp_ex");
	to_init(qp);
	return qp;
}

void connection_create(struct connection *c, uint32_t q)
{
	struct worker *w = &workers[q % options.threads];
	uint32_t turn = q / options.threads;
	struct ibv_qp_init_attr init = { .send_cq = w->cqs[turn % CQS], .recv_cq = w->cqs[(turn + 1) % CQS],
					 .srq = options.xrc ? NULL : w->srq, .qp_type = options.xrc ? IBV_QPT_XRC_SEND : IBV_QPT_RC };
	struct ibv_port_attr port;
	union ibv_gid gid;

	init.cap = (struct ibv_qp_cap){ .max_send_wr = options.depth, .max_recv_wr = options.depth, .max_send_sge = 2,
					.max_recv_sge = 1, .max_inline_data = 128 };
	connection_memory(c);
	c->qp = ibv_create_qp(pd, &init);
	must(c->qp != NULL, "ibv_create_qp");
	max_inline = init.cap.max_inline_data;
	to_init(c->qp);
	must(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, options.gid, &gid), "ibv_query_port");
	c->mine = (struct address){ .qpn = c->qp->qp_num, .rkey = c->mr->rkey, .lid = port.lid, .psn = 7 + q,
				    .landing = (uintptr_t)c->landing, .written = (uintptr_t)c->written,
				    .counter = (uintptr_t)counter, .counter_rkey = counter_mr->rkey };
	memcpy(c->mine.gid, &gid, 16);
	if (!options.xrc)
		return;
	c->target = target_create();
	c->mine.initiator = c->qp->qp_num;
	c->mine.qpn = c->target->qp_num;
	must(!ibv_get_srq_num(w->srq, &c->mine.srqn), "ibv_get_srq_num");
}

static void connect_to(struct connection *c, struct ibv_qp *qp, uint32_t number)
{
	const int responds = qp->qp_type == IBV_QPT_XRC_SEND ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int asks = qp->qp_type == IBV_QPT_XRC_RECV ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
				 .rq_psn = c->other.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 1 };

	a.ah_attr = (struct ibv_ah_attr){ .dlid = c->other.lid, .port_num = 1, .is_global = !c->other.lid };
	memcpy(&a.ah_attr.grh.dgid, c->other.gid, 16);
	a.ah_attr.grh.hop_limit = 1;
	a.ah_attr.grh.sgid_index = (uint8_t)options.gid;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | responds), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = options.timeout ? options.timeout : 17, .retry_cnt = 7,
				  .rnr_retry = 7, .sq_psn = c->mine.psn, .max_rd_atomic = 4 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | asks), "RTS");
}

void connection_connect(struct connection *c)
{
	connect_to(c, c->qp, c->other.qpn);
	if (options.xrc)
		connect_to(c, c->target, c->other.initiator);
}

void worker_destroy(struct worker *w)
{
	if (options.shared)
		shared_destroy(w);
	for (uint32_t i = 0; i < CQS; i++)
		must(!ibv_destroy_cq(w->cqs[i]), "ibv_destroy_cq");
	must(!w->channel || !ibv_destroy_comp_channel(w->channel), "ibv_destroy_comp_channel");
}
