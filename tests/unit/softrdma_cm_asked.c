/* SPDX-License-Identifier: BSD-2-Clause */
/* What is on its way when a life ends (softrdma_cm_life.h): requests, to other hosts too, queries, services, groups, time-outs. */
#include <stdlib.h>
#include <string.h>

#include "softrdma_cm_life.h"

/* ---- other hosts ---- */

/* Each message of a connection's life counts at both ends, and nothing counts twice. */
static void test_counts(void **state)
{
	struct pair s = pair_to(CONNECTED);
	struct lines l;

	if (!other_host()) {
		pair_end(&s);
		skip();
	}
	settled();
	l = lines_now();
	assert_int_equal(l.count, 2);
	for (int i = 0; i < 2; i++) { /* REQ and RTU; REP */
		assert_int_equal(l.line[i].said, l.line[i].own[0] == 'a' ? 2 : 1);
		assert_int_equal(l.line[i].heard, l.line[i].own[0] == 'a' ? 1 : 2);
	}
	cm.hold(0);
	assert_int_equal(rdma_disconnect(s.server), 0);
	settled();
	l = lines_now();
	assert_int_equal(l.count, 2);
	assert_int_equal(l.line[0].said + l.line[1].said, 4);
	cm.hold(0);
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_DISCONNECTED), 0);
	drop(&s.client);
	settled();
	l = lines_now();
	assert_int_equal(l.count, 0);
	cm.hold(0);
	assert_int_equal(expect(s.there, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_end(&s);
}

/* A request that is held is said by nobody but by its id, once, wherever that goes on. */
static void ask_held(int die)
{
	struct rdma_event_channel *ch = channel(), *there = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_TCP, 4), *id = resolved(ch, RDMA_PS_TCP, port_of(l));
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;
	struct lines n;

	cm.hold(1);
	assert_int_equal(rdma_connect(id, &p), 0);
	settled();
	if (other_host()) {
		n = lines_now();
		assert_int_equal(n.count, 0);
		quiet(there);
	}
	if (die)
		life_next(); /* the request needs no place any more */
	else
		cm.hold(0);
	ev = event_of(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ev->param.conn.qp_num, 0x777);
	assert_int_equal(rdma_accept(ev->id, &p), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	quiet(there);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
}

static void test_held(void **state)
{
	ask_held(0);
	ask_held(1);
}

/* Asked too early, in a life before: who listens late in this one is found. */
static void test_late(void **state)
{
	struct rdma_event_channel *ch = channel(), *there = channel();
	struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, 7779), *l;
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, &p), 0);
	life_again();
	life_again();
	l = listener_at(there, 7779);
	asks_on(ch, there);
	ev = event_of(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ev->param.conn.qp_num, 0x777);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
}

/* Nobody listens in the life after; and an id that is not held has its answer in this one. */
static void test_held_for_nobody(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, 7777);
	struct rdma_conn_param p = parameters();

	cm.hold(1);
	assert_int_equal(rdma_connect(id, &p), 0);
	life_next();
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8);
	quiet(ch);
	drop(&id);
	rdma_destroy_event_channel(ch);
}

/* It asks whether the other host is there. */
static void test_query(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *way = resolved(ch, RDMA_PS_TCP, 7778);
	struct rdma_conn_param p = parameters();
	struct sockaddr_in a = address(7778);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	life_again();
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_connect(way, &p), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8);
	quiet(ch);
	drop(&id);
	drop(&way);
	rdma_destroy_event_channel(ch);
}

/* ---- services, groups, time ---- */

static void test_service(void **state)
{
	struct rdma_event_channel *ch = channel(), *there = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_UDP, 4), *id = resolved(ch, RDMA_PS_UDP, port_of(l)), *server;
	struct rdma_conn_param p = { .qp_num = 0x4242, .private_data = "hello", .private_data_len = 6 };
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, &p), 0);
	life_again();
	ev = event_of(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_string_equal(ev->param.ud.private_data, "hello");
	server = ev->id;
	rdma_ack_cm_event(ev);
	life_again();
	assert_int_equal(rdma_accept(server, &p), 0);
	life_again();
	ev = event_of(ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ev->param.ud.qp_num, 0x4242);
	assert_int_equal(ev->param.ud.ah_attr.port_num, 1);
	assert_true(ev->param.ud.ah_attr.dlid);
	rdma_ack_cm_event(ev);
	drop(&id);
	drop(&server);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
}

static void test_group(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_UDP);
	struct sockaddr_in a = address(0), group = { .sin_family = AF_INET };
	struct rdma_cm_event *ev;
	int context;

	if (other_host()) /* no device has "any" address */
		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	inet_pton(AF_INET, "239.9.8.7", &group.sin_addr);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, &context), 0);
	life_again();
	ev = event_of(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(ev->param.ud.private_data, &context);
	assert_int_equal(ev->param.ud.qp_num, 0xffffff);
	rdma_ack_cm_event(ev);
	life_again();
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	drop(&id);
	rdma_destroy_event_channel(ch);
}

/* A clock that ran goes on. */
static void test_time(void **state)
{
	struct pair s;

	setenv("SOFTRDMA_CM_TIMEOUT", "1", 1);
	s = pair_to(ASKED);
	life_again();
	quiet(s.here);
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
	unsetenv("SOFTRDMA_CM_TIMEOUT");
	drop(&s.client);
	drop(&s.listener);
	pair_end(&s);
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		life_test(test_counts), life_test(test_held), life_test(test_held_for_nobody), life_test(test_late), life_test(test_query),
		life_test(test_service), life_test(test_group), life_test(test_time),
	};

	return cmocka_run_group_tests(tests, lives_make, places_remove);
}
