/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_cm_util.h"

struct sockaddr_in address(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	assert_non_null(ch);
	assert_int_equal(fcntl(ch->fd, F_SETFL, O_NONBLOCK), 0);
	return ch;
}

struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, ps), 0);
	return id;
}

struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(rdma_get_cm_event(ch, &ev), 0);
	if (ev->event != type)
		fail_msg("%s, status %d, instead of %s", rdma_event_str(ev->event), ev->status, rdma_event_str(type));
	return ev;
}

int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = event_of(ch, type);
	int status = ev->status;

	assert_int_equal(rdma_ack_cm_event(ev), 0);
	return status;
}

void quiet(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(rdma_get_cm_event(ch, &ev), -1);
	assert_int_equal(errno, EAGAIN);
}

struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps, int backlog)
{
	struct sockaddr_in a = address(0);
	struct rdma_cm_id *id = new_id(ch, ps);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	return id;
}

struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port)
{
	struct sockaddr_in a = address(port);
	struct rdma_cm_id *id = new_id(ch, ps);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	return id;
}

struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){ .qp_num = 0x777, .responder_resources = 3, .initiator_depth = 5,
					 .retry_count = 6, .rnr_retry_count = 4 };
}

uint16_t port_of(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

struct pair pair_to(enum stage stage)
{
	struct rdma_conn_param p = parameters();
	struct pair s = { .there = channel(), .here = channel() };
	struct rdma_cm_event *ev;

	s.listener = listener(s.there, RDMA_PS_TCP, 8);
	s.client = resolved(s.here, RDMA_PS_TCP, port_of(s.listener));
	assert_int_equal(rdma_connect(s.client, &p), 0);
	if (stage == ASKED)
		return s;
	ev = event_of(s.there, RDMA_CM_EVENT_CONNECT_REQUEST);
	s.server = ev->id;
	assert_ptr_equal(ev->listen_id, s.listener);
	assert_int_equal(ev->param.conn.qp_num, 0x777);
	assert_int_equal(ev->param.conn.responder_resources, 5);
	assert_int_equal(ev->param.conn.initiator_depth, 3);
	assert_int_equal(ev->param.conn.private_data_len, 56);
	rdma_ack_cm_event(ev);
	if (stage == REQUESTED)
		return s;
	assert_int_equal(rdma_accept(s.server, &p), 0);
	if (stage == ACCEPTED)
		return s;
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	if (stage == ANSWERED)
		return s;
	assert_int_equal(rdma_establish(s.client), 0);
	assert_int_equal(expect(s.there, RDMA_CM_EVENT_ESTABLISHED), 0);
	quiet(s.here);
	quiet(s.there);
	return s;
}

void pair_end(struct pair *s)
{
	if (s->client)
		assert_int_equal(rdma_destroy_id(s->client), 0);
	if (s->server)
		assert_int_equal(rdma_destroy_id(s->server), 0);
	if (s->listener)
		assert_int_equal(rdma_destroy_id(s->listener), 0);
	rdma_destroy_event_channel(s->here);
	rdma_destroy_event_channel(s->there);
}

void drop(struct rdma_cm_id **id)
{
	assert_int_equal(rdma_destroy_id(*id), 0);
	*id = NULL;
}
