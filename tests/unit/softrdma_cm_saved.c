/* SPDX-License-Identifier: BSD-2-Clause */
/* Channels, and ids in each state, alone and connected, in another life (softrdma_cm_life.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "softrdma_cm_life.h"
#include "softrdma_directory.h"

/* ---- what has no other end ---- */

static void test_nothing(void **state)
{
	struct rdma_event_channel *a, *b;

	assert_int_equal(cm.save(NULL, 0), 0);
	a = channel();
	b = channel();
	assert_int_equal(fcntl(b->fd, F_SETFL, 0), 0);
	assert_int_equal(fcntl(b->fd, F_SETFD, 0), 0);
	life_again();
	quiet(a);
	assert_true(fcntl(a->fd, F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(b->fd, F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(b->fd, F_GETFD) & FD_CLOEXEC);
	rdma_destroy_event_channel(a);
	rdma_destroy_event_channel(b);
	assert_int_equal(cm.next(-1), -1);
}

/* Handles, options, ports and addresses; each id works. */
static void test_alone(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *gap = new_id(ch, RDMA_PS_TCP), *id = new_id(ch, RDMA_PS_TCP), *bound = new_id(ch, RDMA_PS_TCP), *l, *way, *other;
	struct sockaddr_in a = address(0), taken;
	int yes = 1;

	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)), 0);
	assert_int_equal(rdma_bind_addr(bound, (struct sockaddr *)&a), 0);
	l = listener(ch, RDMA_PS_TCP, 4);
	drop(&gap);
	way = resolved(ch, RDMA_PS_TCP, port_of(l));
	life_again();
	quiet(ch);
	other = new_id(ch, RDMA_PS_TCP);
	taken = address(port_of(bound));
	assert_int_equal(rdma_bind_addr(other, (struct sockaddr *)&taken), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_listen(bound, 1), 0);
	taken = address(port_of(l));
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&taken), -1);
	assert_int_equal(errno, EADDRINUSE);
	taken = address(0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&taken), 0);
	assert_int_equal(rdma_connect(way, &(struct rdma_conn_param){ .qp_num = 0x777 }), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST), 0);
	drop(&way);
	drop(&l);
	drop(&bound);
	drop(&other);
	drop(&id);
	rdma_destroy_event_channel(ch);
}

/* Two of each kind, unread: in their order, as often as they are due. */
static void test_unread(void **state)
{
	struct rdma_event_channel *ch = channel(), *to = channel();
	struct rdma_cm_id *l = listener(to, RDMA_PS_TCP, 4), *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP);
	struct sockaddr_in dst = address(port_of(l));
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_resolve_addr(a, NULL, (struct sockaddr *)&dst, 1000), 0);
	assert_int_equal(rdma_resolve_addr(b, NULL, (struct sockaddr *)&dst, 1000), 0);
	life_again();
	ev = event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(ev->id, a);
	rdma_ack_cm_event(ev);
	assert_int_equal(rdma_migrate_id(b, to), 0);
	assert_int_equal(rdma_resolve_route(a, 1000), 0);
	life_again();
	ev = event_of(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(ev->id, b);
	rdma_ack_cm_event(ev);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	quiet(ch);
	quiet(to);
	drop(&a);
	drop(&b);
	drop(&l);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(to);
}

/* ---- connections ---- */

static int count_ends(const void *own, const void *other, int fd, void *arg)
{
	struct { uint8_t name[2][17]; int n; } *ends = arg;

	if (ends->n < 2)
		memcpy(ends->name[ends->n], own, 17);
	if (ends->n == 1) /* one's own is what the other calls its other end */
		assert_memory_equal(ends->name[0], other, 17);
	ends->n++;
	return 0;
}

static int ends(void)
{
	struct { uint8_t name[2][17]; int n; } e = { .n = 0 };

	assert_int_equal(cm.each(count_ends, &e), 0);
	return e.n;
}

/* From @stage on, with a death before each step. */
static void go_on(struct pair *s, enum stage stage)
{
	struct rdma_conn_param p = parameters();
	struct rdma_cm_event *ev;

	p.private_data = "reply";
	p.private_data_len = 6;
	settled();
	assert_int_equal(ends(), 2);
	life_again();
	if (stage == ASKED) {
		ev = event_of(s->there, RDMA_CM_EVENT_CONNECT_REQUEST);
		s->server = ev->id;
		assert_ptr_equal(ev->listen_id, s->listener);
		assert_int_equal(ev->param.conn.qp_num, 0x777);
		assert_int_equal(ev->param.conn.initiator_depth, 3);
		life_again();
		rdma_ack_cm_event(ev);
	}
	if (stage <= REQUESTED) {
		assert_int_equal(rdma_accept(s->server, &p), 0);
		life_again();
	}
	if (stage <= ACCEPTED) {
		ev = event_of(s->here, RDMA_CM_EVENT_CONNECT_RESPONSE);
		assert_string_equal(stage < ACCEPTED ? ev->param.conn.private_data : "reply", "reply");
		rdma_ack_cm_event(ev);
		life_again();
	}
	if (stage <= ANSWERED) {
		assert_int_equal(rdma_establish(s->client), 0);
		life_again();
		assert_int_equal(expect(s->there, RDMA_CM_EVENT_ESTABLISHED), 0);
		life_again();
	}
	quiet(s->here);
	quiet(s->there);
}

static void test_stages(void **state)
{
	for (enum stage stage = ASKED; stage <= CONNECTED; stage++) {
		struct pair s = pair_to(stage);

		go_on(&s, stage);
		assert_int_equal(rdma_disconnect(s.client), 0);
		life_again();
		assert_int_equal(expect(s.there, RDMA_CM_EVENT_DISCONNECTED), 0);
		life_again();
		assert_int_equal(rdma_disconnect(s.server), 0);
		life_again();
		assert_int_equal(expect(s.here, RDMA_CM_EVENT_DISCONNECTED), 0);
		life_again();
		quiet(s.here);
		quiet(s.there);
		pair_end(&s);
	}
}

/* Both say it at once; one ends without a word; one refuses. */
static void test_ends(void **state)
{
	struct pair both = pair_to(CONNECTED), gone = pair_to(CONNECTED), refused = pair_to(REQUESTED), back = pair_to(REQUESTED);
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_disconnect(both.client), 0);
	assert_int_equal(rdma_disconnect(both.server), 0);
	drop(&gone.client);
	assert_int_equal(rdma_reject(refused.server, "no", 3), 0);
	drop(&back.client);
	life_again();
	assert_int_equal(expect(both.here, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(expect(both.there, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(expect(gone.there, RDMA_CM_EVENT_DISCONNECTED), 0);
	ev = event_of(refused.here, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ev->status, NOBODY);
	assert_string_equal(ev->param.conn.private_data, "no");
	rdma_ack_cm_event(ev);
	taken_back(back.there, back.server);
	pair_end(&both);
	pair_end(&gone);
	pair_end(&refused);
	pair_end(&back);
}

/* Many at a time, each with its own other end. */
static void test_many(void **state)
{
	struct pair s[12];

	for (int i = 0; i < 12; i++)
		s[i] = pair_to(i % 2 ? CONNECTED : ANSWERED);
	life_again();
	for (int i = 0; i < 12; i++) {
		if (i % 2)
			drop(&s[i].client);
		else
			drop(&s[i].server);
	}
	life_again();
	for (int i = 0; i < 12; i++) {
		assert_int_equal(expect(i % 2 ? s[i].there : s[i].here, i % 2 ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_REJECTED), i % 2 ? 0 : NOBODY);
		pair_end(&s[i]);
	}
}
/* ---- what cannot be ---- */

/* A stranger has the port now. */
static void test_port_taken(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listener(ch, RDMA_PS_TCP, 4);
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char bytes[4096], path[256];
	long n = cm.save(bytes, sizeof(bytes));
	int fd;

	assert_true(n > 0 && n < (long)sizeof(bytes));
	snprintf(path, sizeof(path), "%s/cm-ports", getenv("SOFTRDMA_DIR"));
	die();
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && !fcntl(fd, F_OFD_SETLK, &all));
	assert_int_equal(cm.load(bytes, (size_t)n), -EADDRINUSE);
	close(fd);
	die();
	for (long i = 0; i < n; i += 7) /* a part is refused, and nothing breaks */
		assert_true(cm.load(bytes, (size_t)i) < 0);
	assert_int_equal(cm.load(bytes, (size_t)n), 0);
	drop(&l);
	rdma_destroy_event_channel(ch);
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		life_test(test_nothing), life_test(test_alone), life_test(test_unread), life_test(test_stages),
		life_test(test_ends), life_test(test_many), life_test(test_port_taken),
	};

	return cmocka_run_group_tests(tests, lives_make, places_remove);
}
