/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm with another end that says nothing: each state that waits for it ends, with the event of hardware and not before its time. The limit
 * is made one second; the other end is in this process, and does not look at its channel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "softrdma_cm_util.h"

#define LIMIT_NS 1000000000

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void timed_out(struct rdma_event_channel *ch, struct rdma_cm_id *id, enum rdma_cm_event_type type, long long since)
{
	struct rdma_cm_event *ev = event_of(ch, type);

	assert_ptr_equal(ev->id, id);
	assert_int_equal(ev->status, -ETIMEDOUT);
	assert_int_equal(rdma_ack_cm_event(ev), 0);
	assert_true(now() - since >= LIMIT_NS);
	quiet(ch);
}

static void test_each(void **state)
{
	long long begin = now();
	struct pair asked = pair_to(ASKED), requested = pair_to(REQUESTED), accepted = pair_to(ACCEPTED),
		    leaving = pair_to(CONNECTED);
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_disconnect(leaving.client), 0);
	timed_out(asked.here, asked.client, RDMA_CM_EVENT_UNREACHABLE, begin);
	timed_out(requested.here, requested.client, RDMA_CM_EVENT_UNREACHABLE, begin);
	timed_out(accepted.there, accepted.server, RDMA_CM_EVENT_UNREACHABLE, begin);
	timed_out(leaving.here, leaving.client, RDMA_CM_EVENT_DISCONNECTED, begin);

	/* What the late ones find. */
	ev = event_of(asked.there, RDMA_CM_EVENT_CONNECT_REQUEST);
	taken_back(asked.there, ev->id);
	assert_int_equal(rdma_destroy_id(ev->id), 0);
	rdma_ack_cm_event(ev);
	taken_back(requested.there, requested.server);
	assert_int_equal(expect(accepted.here, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	assert_int_equal(rdma_establish(accepted.client), 0);
	expect(accepted.here, RDMA_CM_EVENT_DISCONNECTED);
	expect(leaving.there, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(leaving.server), 0);
	pair_end(&asked);
	pair_end(&requested);
	pair_end(&accepted);
	pair_end(&leaving);
}

static void test_service(void **state)
{
	struct rdma_event_channel *ch = channel(), *there = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_UDP, 4), *id = resolved(ch, RDMA_PS_UDP, port_of(l));
	struct rdma_conn_param p = { .qp_num = 0x4242 };
	long long begin = now();

	assert_int_equal(rdma_connect(id, &p), 0);
	timed_out(ch, id, RDMA_CM_EVENT_UNREACHABLE, begin);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
}

/* Ids that began to wait earlier, and were answered, destroyed or migrated since, say nothing when a later one's time is over. */
static void test_answered(void **state)
{
	struct pair s = pair_to(CONNECTED);
	struct rdma_event_channel *other = channel();
	uint16_t port = port_of(s.listener);
	struct rdma_cm_id *gone = resolved(s.here, RDMA_PS_TCP, port), *moved = resolved(s.here, RDMA_PS_TCP, port),
			  *late = resolved(s.here, RDMA_PS_TCP, port);
	struct rdma_conn_param p = parameters();
	long long begin = now();

	assert_int_equal(rdma_connect(gone, &p), 0);
	assert_int_equal(rdma_connect(moved, &p), 0);
	assert_int_equal(rdma_connect(late, &p), 0);
	drop(&gone);
	assert_int_equal(rdma_migrate_id(moved, other), 0);
	timed_out(s.here, late, RDMA_CM_EVENT_UNREACHABLE, begin);
	timed_out(other, moved, RDMA_CM_EVENT_UNREACHABLE, begin);
	assert_int_equal(rdma_disconnect(s.server), 0);
	expect(s.here, RDMA_CM_EVENT_DISCONNECTED);
	drop(&moved);
	drop(&late);
	pair_end(&s);
	rdma_destroy_event_channel(other);
}

static void exits(struct rdma_event_channel *ch, struct rdma_cm_id *id, long long since)
{
	struct rdma_cm_event *ev = event_of(ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);

	assert_ptr_equal(ev->id, id);
	assert_int_equal(ev->status, 0);
	assert_int_equal(rdma_ack_cm_event(ev), 0);
	assert_true(now() - since >= 512000000);
	quiet(ch);
}

/* Behind a disconnection, at each end when both know of it; an id that has gone by then is not told. */
static void test_timewait(void **state)
{
	struct pair s = pair_to(CONNECTED), early = pair_to(CONNECTED), killed = pair_to(CONNECTED);
	long long begin = now();

	assert_int_equal(rdma_disconnect(s.client), 0);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(s.server), 0);
	expect(s.here, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(early.client), 0);
	expect(early.there, RDMA_CM_EVENT_DISCONNECTED);
	drop(&early.server);
	expect(early.here, RDMA_CM_EVENT_DISCONNECTED);
	drop(&killed.client);
	expect(killed.there, RDMA_CM_EVENT_DISCONNECTED);
	quiet(killed.there);
	assert_int_equal(rdma_disconnect(killed.server), 0);
	exits(s.here, s.client, begin);
	exits(s.there, s.server, begin);
	exits(early.here, early.client, begin);
	exits(killed.there, killed.server, begin);
	quiet(early.there);
	pair_end(&s);
	pair_end(&early);
	pair_end(&killed);
}

enum late { STAYS, MIGRATES, GOES };

/* It asks before somebody listens. */
static void ask_early(enum late late)
{
	struct rdma_event_channel *ch = channel(), *there = channel(), *other = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_TCP, 4), *id = resolved(ch, RDMA_PS_TCP, port_of(l));
	struct rdma_conn_param p = parameters();
	uint16_t port = port_of(l);
	struct rdma_cm_event *ev;

	drop(&l);
	assert_int_equal(rdma_connect(id, &p), 0);
	l = listener_at(there, port);
	if (late == MIGRATES)
		assert_int_equal(rdma_migrate_id(id, other), 0);
	if (late == GOES) {
		drop(&id);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		quiet(there);
	} else {
		asks_on(late == STAYS ? ch : other, there);
		ev = event_of(there, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(ev->param.conn.qp_num, 0x777);
		assert_int_equal(rdma_destroy_id(ev->id), 0);
		rdma_ack_cm_event(ev);
		assert_int_equal(expect(late == STAYS ? ch : other, RDMA_CM_EVENT_REJECTED), NOBODY);
		drop(&id);
	}
	quiet(ch);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
	rdma_destroy_event_channel(other);
}

static void test_late(void **state)
{
	ask_early(STAYS);
	ask_early(MIGRATES);
	ask_early(GOES);
}

/* Having found who listens late, it waits as long as it would have. */
static void test_late_unanswered(void **state)
{
	struct rdma_event_channel *ch = channel(), *there = channel();
	struct rdma_cm_id *l = listener(there, RDMA_PS_TCP, 4), *id = resolved(ch, RDMA_PS_TCP, port_of(l));
	struct rdma_conn_param p = parameters();
	uint16_t port = port_of(l);
	long long begin = now();

	drop(&l);
	assert_int_equal(rdma_connect(id, &p), 0);
	l = listener_at(there, port);
	asks_on(ch, there);
	timed_out(ch, id, RDMA_CM_EVENT_UNREACHABLE, begin);
	assert_true(now() - begin < 2ll * LIMIT_NS);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each), cmocka_unit_test(test_service), cmocka_unit_test(test_answered), cmocka_unit_test(test_timewait),
		/* On one host only; to another one its own thread asks, and does not wait for the test. */
		cmocka_unit_test(test_late), cmocka_unit_test(test_late_unanswered),
	};

	setenv("SOFTRDMA_CM_TIMEOUT", "1", 1);
	return run_places(tests, sizeof(tests) / sizeof(*tests), 2);
}
