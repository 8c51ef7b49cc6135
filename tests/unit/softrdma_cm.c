/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm: the system's own librdmacm over a preloaded softrdma. What an id goes through, in one process: each state, and what its end tells the
 * other end there; backlog, private data, attributes of queue pairs, migration, services, multicast.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "softrdma_cm_util.h"

static void test_disconnect(void **state)
{
	struct pair s = pair_to(CONNECTED);

	assert_int_equal(rdma_disconnect(s.client), 0);
	quiet(s.here); /* until the other end has answered */
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(s.server), 0);
	expect(s.here, RDMA_CM_EVENT_DISCONNECTED);
	quiet(s.here);
	quiet(s.there);
	pair_end(&s);
	s = pair_to(CONNECTED);
	assert_int_equal(rdma_disconnect(s.server), 0);
	assert_int_equal(rdma_disconnect(s.client), 0); /* the two cross */
	expect(s.here, RDMA_CM_EVENT_DISCONNECTED);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	quiet(s.here);
	quiet(s.there);
	pair_end(&s);
}

/* An id's end in each state, at either end. */
static void test_destroyed(void **state)
{
	struct pair s = pair_to(ASKED);

	drop(&s.listener);
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_REJECTED), NOBODY);
	pair_end(&s);
	s = pair_to(REQUESTED);
	drop(&s.server);
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_REJECTED), NOBODY);
	pair_end(&s);
	s = pair_to(REQUESTED);
	drop(&s.client);
	taken_back(s.there, s.server);
	pair_end(&s);
	s = pair_to(ANSWERED);
	drop(&s.client);
	assert_int_equal(expect(s.there, RDMA_CM_EVENT_REJECTED), NOBODY);
	pair_end(&s);
	s = pair_to(CONNECTED);
	drop(&s.server);
	expect(s.here, RDMA_CM_EVENT_DISCONNECTED);
	pair_end(&s);
	s = pair_to(CONNECTED);
	drop(&s.client);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	quiet(s.there);
	pair_end(&s);
}

/* Closing a channel ends what is on it. */
static void test_channel_closed(void **state)
{
	struct pair s = pair_to(CONNECTED);

	assert_int_equal(close(s.here->fd), 0);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	drop(&s.server);
	drop(&s.listener);
	rdma_destroy_event_channel(s.there);
}

static void test_reject(void **state)
{
	struct pair s = pair_to(REQUESTED);
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_reject(s.server, "go away", 8), 0);
	ev = event_of(s.here, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ev->status, NOBODY);
	assert_int_equal(ev->param.conn.private_data_len, 148);
	assert_string_equal(ev->param.conn.private_data, "go away");
	rdma_ack_cm_event(ev);
	pair_end(&s);
}

static void test_nobody(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_conn_param p = parameters();
	struct rdma_cm_id *bound = new_id(ch, RDMA_PS_TCP), *id;
	struct sockaddr_in a = address(0);

	/* A port that is taken but not listened on. */
	assert_int_equal(rdma_bind_addr(bound, (struct sockaddr *)&a), 0);
	id = resolved(ch, RDMA_PS_TCP, port_of(bound));
	assert_int_equal(rdma_connect(id, &p), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8);
	drop(&id);
	/* Another host. */
	a.sin_addr.s_addr = inet_addr("198.51.100.7");
	id = new_id(ch, RDMA_PS_TCP);
	if (!rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000))
		assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_ERROR), -EHOSTUNREACH);
	else /* no way there at all */
		assert_int_equal(errno, ENETUNREACH);
	drop(&id);
	id = new_id(ch, RDMA_PS_TCP);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);
	drop(&id);
	drop(&bound);
	rdma_destroy_event_channel(ch);
}

static void test_backlog(void **state)
{
	struct rdma_event_channel *there = channel(), *here = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_TCP, 2), *id[3];
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;
	int i;

	for (i = 0; i < 3; i++) {
		id[i] = resolved(here, RDMA_PS_TCP, port_of(l));
		assert_int_equal(rdma_connect(id[i], &p), 0);
		if (i < 2)
			quiet(here);
	}
	assert_int_equal(expect(here, RDMA_CM_EVENT_REJECTED), NOBODY);
	for (i = 0; i < 2; i++) {
		ev = event_of(there, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(rdma_destroy_id(ev->id), 0);
		rdma_ack_cm_event(ev);
	}
	quiet(there);
	for (i = 0; i < 2; i++)
		assert_int_equal(expect(here, RDMA_CM_EVENT_REJECTED), NOBODY);
	for (i = 0; i < 3; i++)
		drop(&id[i]);
	drop(&l);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void test_private_data(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listener(ch, RDMA_PS_TCP, 4), *client = resolved(ch, RDMA_PS_TCP, port_of(l)), *server;
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;
	char data[200];
	int i;

	for (i = 0; i < (int)sizeof(data); i++)
		data[i] = (char)i;
	p.private_data = data;
	p.private_data_len = 57;
	assert_int_equal(rdma_connect(client, &p), -1);
	assert_int_equal(errno, EINVAL);
	p.private_data_len = 56;
	assert_int_equal(rdma_connect(client, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_memory_equal(ev->param.conn.private_data, data, 56);
	assert_int_equal(ev->param.conn.retry_count, 6);
	assert_int_equal(ev->param.conn.rnr_retry_count, 4);
	server = ev->id;
	rdma_ack_cm_event(ev);
	p.private_data_len = 3;
	assert_int_equal(rdma_accept(server, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(ev->param.conn.private_data_len, 196);
	assert_memory_equal(ev->param.conn.private_data, data, 3);
	assert_int_equal(((const char *)ev->param.conn.private_data)[3], 0);
	rdma_ack_cm_event(ev);
	drop(&client);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&server);
	drop(&l);
	rdma_destroy_event_channel(ch);
}

/* What librdmacm needs to move a QP, in each state. */
static void test_qp_attributes(void **state)
{
	struct pair s = pair_to(ANSWERED);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR }, b = { .qp_state = IBV_QPS_RTS };
	int mask;

	assert_int_equal(rdma_init_qp_attr(s.client, &a, &mask), 0);
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(a.dest_qp_num, 0x777);
	assert_int_equal(a.max_dest_rd_atomic, 5);
	assert_int_equal(a.path_mtu, IBV_MTU_4096);
	assert_int_equal(a.ah_attr.grh.sgid_index, 0);
	assert_int_equal(rdma_init_qp_attr(s.server, &b, &mask), 0);
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT);
	assert_int_equal(b.sq_psn, a.rq_psn);
	assert_int_equal(b.retry_cnt, 6);
	assert_int_equal(b.rnr_retry, 4);
	assert_int_equal(b.max_rd_atomic, 5);
	assert_int_equal(s.client->route.num_paths, 1);
	assert_int_equal(s.server->route.num_paths, 1);
	assert_int_equal(s.server->route.path_rec->mtu, IBV_MTU_4096);
	assert_int_equal(rdma_get_dst_port(s.client), rdma_get_src_port(s.server));
	assert_int_equal(rdma_get_src_port(s.client), rdma_get_dst_port(s.server));
	pair_end(&s);
}

static void test_notify(void **state)
{
	struct pair s = pair_to(ANSWERED);

	assert_int_equal(rdma_notify(s.server, IBV_EVENT_COMM_EST), 0);
	expect(s.there, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_establish(s.client), 0);
	assert_int_equal(rdma_disconnect(s.client), 0);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	pair_end(&s);
}

static void test_migrate(void **state)
{
	struct pair s = pair_to(CONNECTED);
	struct rdma_event_channel *other = channel();
	struct rdma_cm_id *l = s.listener, *second;
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;

	/* One with something unread, one whose event is queued, and a listener with a request. */
	assert_int_equal(rdma_disconnect(s.server), 0);
	assert_int_equal(rdma_migrate_id(s.client, other), 0);
	quiet(s.here);
	expect(other, RDMA_CM_EVENT_DISCONNECTED);
	second = resolved(s.here, RDMA_PS_TCP, port_of(l));
	assert_int_equal(rdma_connect(second, &p), 0);
	assert_int_equal(rdma_migrate_id(l, other), 0);
	quiet(s.there);
	ev = event_of(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(ev->id->channel, other);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(s.here, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&second);
	pair_end(&s);
	rdma_destroy_event_channel(other);
}

static void test_service(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listener(ch, RDMA_PS_UDP, 4), *id = resolved(ch, RDMA_PS_UDP, port_of(l)), *there;
	struct rdma_conn_param p = { .qp_num = 0x4242, .private_data = "who", .private_data_len = 4 };
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_connect(id, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(ev->param.ud.private_data_len, 180);
	assert_string_equal(ev->param.ud.private_data, "who");
	there = ev->id;
	rdma_ack_cm_event(ev);
	p.private_data = "me";
	p.private_data_len = 3;
	assert_int_equal(rdma_accept(there, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(ev->id, id);
	assert_int_equal(ev->param.ud.qp_num, 0x4242);
	assert_int_equal(ev->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(ev->param.ud.private_data_len, 136);
	assert_string_equal(ev->param.ud.private_data, "me");
	assert_int_not_equal(ev->param.ud.ah_attr.dlid, 0);
	rdma_ack_cm_event(ev);
	drop(&there);
	drop(&id);
	id = resolved(ch, RDMA_PS_UDP, port_of(l));
	assert_int_equal(rdma_connect(id, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_reject(ev->id, NULL, 0), 0);
	there = ev->id;
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_UNREACHABLE), 2);
	drop(&there);
	drop(&id);
	id = resolved(ch, RDMA_PS_UDP, port_of(l));
	drop(&l);
	assert_int_equal(rdma_connect(id, &p), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_UNREACHABLE), 1);
	drop(&id);
	rdma_destroy_event_channel(ch);
}

static void test_multicast(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_UDP);
	struct sockaddr_in a = address(0), group = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.1.2.3") };
	static const uint8_t want[16] = { 0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x0f, 1, 2, 3 };
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, ch), 0);
	ev = event_of(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(ev->param.ud.private_data, ch);
	assert_int_equal(ev->param.ud.qp_num, 0xffffff);
	assert_true(ev->param.ud.ah_attr.dlid >= 0xc000 && ev->param.ud.ah_attr.dlid != 0xffff);
	assert_memory_equal(ev->param.ud.ah_attr.grh.dgid.raw, want, 16);
	rdma_ack_cm_event(ev);
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	/* One that is left before its event was got. */
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	quiet(ch);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
	drop(&id);
	quiet(ch);
	rdma_destroy_event_channel(ch);
}

static void test_any_and_ib(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = new_id(ch, RDMA_PS_TCP), *id;
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;

	/* IPv6's "any" takes IPv4 too; a listener on it has no device yet. */
	assert_int_equal(rdma_bind_addr(l, (struct sockaddr *)&any), 0);
	assert_null(l->verbs);
	assert_int_equal(rdma_listen(l, 0), 0);
	id = resolved(ch, RDMA_PS_TCP, port_of(l));
	assert_non_null(id->verbs);
	assert_int_equal(rdma_connect(id, &p), 0);
	ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_non_null(ev->id->verbs);
	assert_int_equal(ev->id->route.addr.src_addr.sa_family, AF_INET);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
}

static void test_many(void **state)
{
	struct rdma_event_channel *ch = channel();
	static struct rdma_cm_id *id[3000];
	int i;

	for (i = 0; i < 3000; i++) {
		struct sockaddr_in a = address(0);

		id[i] = new_id(ch, RDMA_PS_TCP);
		assert_int_equal(rdma_bind_addr(id[i], (struct sockaddr *)&a), 0);
	}
	for (i = 0; i < 3000; i++)
		drop(&id[i]);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disconnect), cmocka_unit_test(test_destroyed), cmocka_unit_test(test_channel_closed),
		cmocka_unit_test(test_reject), cmocka_unit_test(test_backlog), cmocka_unit_test(test_private_data),
		cmocka_unit_test(test_qp_attributes), cmocka_unit_test(test_notify), cmocka_unit_test(test_migrate),
		cmocka_unit_test(test_service), cmocka_unit_test(test_any_and_ib),
		/* On one host only: */
		cmocka_unit_test(test_nobody), cmocka_unit_test(test_multicast), cmocka_unit_test(test_many),
	};

	return run_places(tests, sizeof(tests) / sizeof(*tests), 3);
}
