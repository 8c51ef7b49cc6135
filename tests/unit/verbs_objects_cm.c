/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_cm: channels and their ids, as librdmacm asks for them, and as it must find them under the same names on another host. */
#include "verbs_objects.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP 0x0106
#define EVENT_REQUEST 4
#define EVENT_RESPONSE 5
#define EVENT_ESTABLISHED 9

static int cm_fd;
static uint32_t listening, asking, asked;
static uint16_t cm_port;
static struct rdma_ucm_query_route_resp route;
static struct ib_uverbs_qp_attr attr;

/* Where the answer goes stands first in most, and second in one. */
static long command(uint32_t number, void *in, size_t len, void *out, size_t room)
{
	size_t at = number == RDMA_USER_CM_CMD_CREATE_ID ? offsetof(struct rdma_ucm_create_id, response) : 0;
	struct {
		struct rdma_ucm_cmd_hdr h;
		char in[1024];
	} c = { .h = { .cmd = number, .in = (uint16_t)len, .out = (uint16_t)room } };

	memcpy(c.in, in, len);
	if (out)
		memcpy(c.in + at, &(uint64_t){ (uintptr_t)out }, sizeof(uint64_t));
	return plugin_verbs.file_write(cm_fd, &c, sizeof(c.h) + len);
}

static void must(uint32_t number, void *in, size_t len, void *out, size_t room)
{
	die_unless(command(number, in, len, out, room) > 0);
}

static uint32_t id_new(uint64_t uid)
{
	struct rdma_ucm_create_id c = { .uid = uid, .ps = TCP };
	struct rdma_ucm_create_id_resp r;

	must(RDMA_USER_CM_CMD_CREATE_ID, &c, sizeof(c), &r, sizeof(r));
	return r.id;
}

static struct rdma_ucm_event_resp event(uint32_t type)
{
	struct rdma_ucm_get_event g = { 0 };
	struct rdma_ucm_event_resp r;

	must(RDMA_USER_CM_CMD_GET_EVENT, &g, sizeof(g), &r, sizeof(r));
	die_unless(r.event == type);
	return r;
}

static struct rdma_ucm_query_route_resp route_of(uint32_t id)
{
	struct rdma_ucm_query q = { .id = id };
	struct rdma_ucm_query_route_resp r;

	memset(&r, 0, sizeof(r));
	must(RDMA_USER_CM_CMD_QUERY_ROUTE, &q, sizeof(q), &r, sizeof(r));
	return r;
}

static struct ib_uverbs_qp_attr attr_of(uint32_t id, uint32_t state)
{
	struct rdma_ucm_init_qp_attr q = { .id = id, .qp_state = state };
	struct ib_uverbs_qp_attr r;

	must(RDMA_USER_CM_CMD_INIT_QP_ATTR, &q, sizeof(q), &r, sizeof(r));
	return r;
}

static void channel_make(void)
{
	connected(IBV_QPT_RC);
	cm_fd = plugin_verbs.file_open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	die_unless(cm_fd >= 0);
}

static void channel_check(void)
{
	send_works();
	id_new(1);
}

static void channel_unmake(void)
{
	die_unless(!plugin_verbs.file_close(cm_fd));
}

static void listener_make(void)
{
	struct rdma_ucm_bind b = { .addr_size = sizeof(struct sockaddr_in) };
	struct rdma_ucm_listen l = { .backlog = 4 };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	channel_make();
	id_new(1); /* so that handles are not what they would be by themselves */
	listening = id_new(2);
	memcpy(&b.addr, &a, sizeof(a));
	b.id = l.id = listening;
	must(RDMA_USER_CM_CMD_BIND, &b, sizeof(b), NULL, 0);
	must(RDMA_USER_CM_CMD_LISTEN, &l, sizeof(l), NULL, 0);
	route = route_of(listening);
	cm_port = ntohs(route.src_addr.sin6_port);
}

static void ask(void)
{
	struct rdma_ucm_resolve_addr r = { .dst_size = sizeof(struct sockaddr_in), .timeout_ms = 1000 };
	struct rdma_ucm_resolve_route way = { .timeout_ms = 1000 };
	struct rdma_ucm_connect c = { .conn_param = { .qp_num = e.me.qpn[0], .valid = 1, .private_data = "hello", .private_data_len = 6 } };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(cm_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	r.id = way.id = c.id = asking = id_new(3);
	memcpy(&r.dst_addr, &a, sizeof(a));
	must(RDMA_USER_CM_CMD_RESOLVE_ADDR, &r, sizeof(r), NULL, 0);
	event(0);
	must(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &way, sizeof(way), NULL, 0);
	event(2);
	must(RDMA_USER_CM_CMD_CONNECT, &c, sizeof(c), NULL, 0);
}

static void accept_it(void)
{
	struct rdma_ucm_accept a = { .uid = 4, .conn_param = { .qp_num = e.me.qpn[0], .valid = 1 } };
	struct rdma_ucm_event_resp r = event(EVENT_REQUEST);

	die_unless(r.uid == 2 && !strcmp((char *)r.param.conn.private_data, "hello") && r.param.conn.qp_num == e.me.qpn[0]);
	a.id = asked = r.id;
	must(RDMA_USER_CM_CMD_ACCEPT, &a, sizeof(a), NULL, 0);
}

/* The device, its port and the other end's, as they were. */
static void names_check(void)
{
	struct rdma_ucm_query_route_resp now = route_of(asking);
	struct ib_uverbs_qp_attr to = attr_of(asking, IBV_QPS_RTR);

	die_unless(route.node_guid && now.node_guid == route.node_guid && !memcmp(&now.ib_route[0], &route.ib_route[0], sizeof(now.ib_route[0])));
	die_unless(to.ah_attr.dlid == e.me.lid && to.dest_qp_num == e.me.qpn[0]);
	die_unless(!memcmp(&to.ah_attr, &attr.ah_attr, sizeof(to.ah_attr)) && to.rq_psn == attr.rq_psn);
	send_works();
}

static void listener_check(void)
{
	ask();
	accept_it();
	event(EVENT_RESPONSE);
	die_unless(attr_of(asking, IBV_QPS_RTR).ah_attr.dlid == e.me.lid);
	die_unless(ntohs(route_of(asking).ib_route[0].dlid) == e.me.lid);
}

static void asked_make(void)
{
	listener_make();
	ask();
	route = route_of(asking);
}

static void asked_check(void)
{
	struct rdma_ucm_query_route_resp now = route_of(asking);

	die_unless(now.node_guid == route.node_guid && !memcmp(now.ib_route, route.ib_route, sizeof(now.ib_route)));
	accept_it();
	event(EVENT_RESPONSE);
}

static void answered_make(void)
{
	asked_make();
	accept_it();
	attr = attr_of(asked, IBV_QPS_RTR); /* of the one who was asked: the same host, and the same queue pair */
}

static void answered_check(void)
{
	event(EVENT_RESPONSE);
	attr.rq_psn = attr_of(asking, IBV_QPS_RTR).rq_psn;
	names_check();
}

static void established_make(void)
{
	struct rdma_ucm_accept a;

	asked_make();
	accept_it();
	event(EVENT_RESPONSE);
	attr = attr_of(asking, IBV_QPS_RTR);
	memset(&a, 0, sizeof(a));
	a.id = asking;
	must(RDMA_USER_CM_CMD_ACCEPT, &a, sizeof(a), NULL, 0);
	event(EVENT_ESTABLISHED);
}

static void established_check(void)
{
	struct rdma_ucm_disconnect d = { .id = asked };
	struct rdma_ucm_destroy_id end = { .id = asking };
	struct rdma_ucm_destroy_id_resp told;
	struct rdma_ucm_event_resp r;

	names_check();
	must(RDMA_USER_CM_CMD_DISCONNECT, &d, sizeof(d), NULL, 0);
	r = event(10 /* DISCONNECTED */);
	die_unless(r.uid == 3);
	/* Those before the restart count: librdmacm waits for the acknowledgement of so many. */
	must(RDMA_USER_CM_CMD_DESTROY_ID, &end, sizeof(end), &told, sizeof(told));
	die_unless(told.events_reported == 4);
}

/* ---- somebody of another job ---- */

static pid_t stranger;

static void stranger_make(void)
{
	int ready[2];
	char c;

	listener_make();
	die_unless(!pipe(ready));
	stranger = fork();
	if (!stranger) {
		cm_fd = plugin_verbs.file_open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
		ask();
		die_unless(write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	die_unless(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	close(ready[1]);
}

static void stranger_check(void)
{
	accept_it();
}

static void stranger_unmake(void)
{
	kill(stranger, SIGKILL);
	die_unless(reap(stranger));
}

const struct object cm_objects[] = {
	{ "rdma_cm channel", NULL, channel_make, channel_check, channel_unmake },
	{ "rdma_cm listener", NULL, listener_make, listener_check, channel_unmake },
	{ "rdma_cm request", NULL, asked_make, asked_check, channel_unmake },
	{ "rdma_cm answer", NULL, answered_make, answered_check, channel_unmake },
	{ "rdma_cm connection", NULL, established_make, established_check, channel_unmake },
	{ "rdma_cm connection out of the job", "not in the job", stranger_make, stranger_check, stranger_unmake },
	{ 0 },
};
