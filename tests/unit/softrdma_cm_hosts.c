/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm to other hosts, what only they have: a host that is asked for, and the ports of TCP where a listener is looked for, some of which are
 * other listeners' or strangers'.
 */
#include "softrdma_cm_util.h"

/* An id whose host is being asked for can be destroyed, and migrated; and asked for again where nobody was. */
static void test_query(void **state)
{
	struct rdma_event_channel *ch = channel(), *other = channel();
	struct sockaddr_in a = address(9);
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	drop(&id);
	quiet(ch);
	id = new_id(ch, RDMA_PS_TCP);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(rdma_migrate_id(id, other), 0);
	assert_int_equal(expect(other, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	drop(&id);
	quiet(ch);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(other);
}

/* Ports whose places among TCP's ports are the same ones: each of their listeners is found. */
static void test_neighbours(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_conn_param p = parameters();
	struct rdma_cm_id *l[3], *id;
	struct rdma_cm_event *ev;
	uint16_t port[3];
	int i;

	same_slots(port);
	for (i = 0; i < 3; i++)
		l[i] = listener_at(ch, port[i]);
	drop(&l[1]);
	for (i = 2; i >= 0; i--) {
		id = resolved(ch, RDMA_PS_TCP, port[i]);
		assert_int_equal(rdma_connect(id, &p), 0);
		if (i == 1) {
			assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8);
		} else {
			ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
			assert_ptr_equal(ev->listen_id, l[i]);
			assert_int_equal(rdma_destroy_id(ev->id), 0);
			rdma_ack_cm_event(ev);
			assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
			drop(&l[i]);
		}
		drop(&id);
	}
	rdma_destroy_event_channel(ch);
}

/* Somebody else has the first of a listener's ports of TCP, and says nothing, or nonsense, or hangs up. */
static void test_strangers(void **state)
{
	static const char *const words[] = { "", "HTTP/1.1 400 Bad Request: what is said here is long enough to be taken for a hello, and is none.\r\n" };
	struct rdma_event_channel *ch = channel();
	struct rdma_conn_param p = parameters();
	struct rdma_cm_id *l, *id;
	struct rdma_cm_event *ev;
	uint16_t port = 7123;
	size_t i;
	int there;

	for (i = 0; i < 2; i++) {
		struct stranger s = stranger_begin(first_slot(port), words[i]);

		l = listener_at(ch, port);
		id = resolved(ch, RDMA_PS_TCP, port);
		assert_int_equal(rdma_connect(id, &p), 0);
		ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(rdma_destroy_id(ev->id), 0);
		rdma_ack_cm_event(ev);
		assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
		drop(&id);
		drop(&l);
		there = stranger_end(&s);
		assert_true(there > 0);
	}
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_query), cmocka_unit_test(test_neighbours), cmocka_unit_test(test_strangers),
	};

	return cmocka_run_group_tests(tests, places_make, places_remove);
}
