/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a connection of rdma_cm, by hand, with a stop between two steps: "ready" when the server has accepted, "asked" when it has asked for its queue pair's attributes and the client has not,
 * "connected" when both queue pairs are. It goes on when a line comes. At the end each has got what the other sent: "passed".
 *
 *   cm_between ADDRESS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_S 60
#define RETRIES 7
#define ATTR_MAX 3

#define NEED(condition)                                                                       \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

/* INIT, RTR and RTS. */
struct attributes {
	struct ibv_qp_attr attr[ATTR_MAX];
	int mask[ATTR_MAX];
};

struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char text[2][16]; /* sent and received */
};

static struct rdma_event_channel *channel;

static struct rdma_cm_id *event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	NEED(!rdma_get_cm_event(channel, &ev));
	if (ev->event != type) {
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(ev->event), ev->status, rdma_event_str(type));
		exit(1);
	}
	id = ev->id;
	NEED(!rdma_ack_cm_event(ev));
	return id;
}

static void end_make(struct end *e, struct rdma_cm_id *id, const char *says)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);

	NEED(pd);
	e->id = id;
	e->cq = init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
	NEED(e->cq);
	e->qp = ibv_create_qp(pd, &init);
	NEED(e->qp);
	e->mr = ibv_reg_mr(pd, e->text, sizeof(e->text), IBV_ACCESS_LOCAL_WRITE);
	NEED(e->mr);
	snprintf(e->text[0], sizeof(e->text[0]), "%s", says);
}

static void ask(struct rdma_cm_id *id, struct attributes *a)
{
	static const enum ibv_qp_state state[ATTR_MAX] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (int i = 0; i < ATTR_MAX; i++) {
		a->attr[i].qp_state = state[i];
		NEED(!rdma_init_qp_attr(id, &a->attr[i], &a->mask[i]));
	}
}

static void take(struct ibv_qp *qp, struct attributes *a)
{
	for (int i = 0; i < ATTR_MAX; i++) {
		errno = ibv_modify_qp(qp, &a->attr[i], a->mask[i]);
		NEED(!errno);
	}
}

static void stop(const char *where)
{
	char line[16];

	puts(where);
	NEED(fgets(line, sizeof(line), stdin));
}

static struct rdma_conn_param parameters(const struct end *e)
{
	return (struct rdma_conn_param){ .qp_num = e->qp->qp_num, .responder_resources = 1, .initiator_depth = 1, .retry_count = RETRIES, .rnr_retry_count = RETRIES };
}

static void connect_both(const struct sockaddr_in *to, struct end *server, struct end *client)
{
	struct rdma_cm_id *listener, *id;
	struct rdma_conn_param p;
	struct attributes a, b;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	NEED(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	NEED(!rdma_bind_addr(listener, (struct sockaddr *)to) && !rdma_listen(listener, 1));
	NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&(struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = to->sin_addr, .sin_port = rdma_get_src_port(listener) }, 10000));
	event(RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(id, 10000));
	event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	end_make(client, id, "from client");
	p = parameters(client);
	NEED(!rdma_connect(id, &p));
	end_make(server, event(RDMA_CM_EVENT_CONNECT_REQUEST), "from server");
	p = parameters(server);
	NEED(!rdma_accept(server->id, &p));
	event(RDMA_CM_EVENT_CONNECT_RESPONSE);
	stop("ready");
	ask(server->id, &a);
	stop("asked");
	ask(client->id, &b);
	take(server->qp, &a);
	take(client->qp, &b);
	NEED(!rdma_establish(client->id));
	event(RDMA_CM_EVENT_ESTABLISHED);
}

static void post(struct end *e)
{
	struct ibv_sge to = { (uintptr_t)e->text[1], sizeof(e->text[1]), e->mr->lkey }, from = { (uintptr_t)e->text[0], sizeof(e->text[0]), e->mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad_send;

	NEED(!ibv_post_recv(e->qp, &receive, &bad_receive));
	NEED(!ibv_post_send(e->qp, &send, &bad_send));
}

/* Its send's completion and its receive's. */
static void await(struct end *e, const char *from)
{
	time_t until = time(NULL) + TIMEOUT_S;
	struct ibv_wc wc;

	for (int n, got = 0; got < 2; got += n) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		NEED(n >= 0 && time(NULL) < until);
		NEED(!n || wc.status == IBV_WC_SUCCESS);
	}
	NEED(!strcmp(e->text[1], from));
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	static struct end server, client;

	NEED(argc == 2 && inet_pton(AF_INET, argv[1], &a.sin_addr) == 1);
	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	channel = rdma_create_event_channel();
	NEED(channel);
	connect_both(&a, &server, &client);
	stop("connected");
	post(&server);
	post(&client);
	await(&server, client.text[0]);
	await(&client, server.text[0]);
	puts("passed");
	return 0;
}
