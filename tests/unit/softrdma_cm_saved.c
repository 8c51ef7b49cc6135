/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ids in each state are written down, die with all their sockets as a killed process's do, and are made again: the program goes on as if nothing had
 * been, with the handles and descriptors that librdmacm has. Both ends are in this process, on a channel each. With two hosts (END_HOSTS) each connection is
 * one between them up to the first death; the lives after it are on one.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softrdma_cm_util.h"
#include "softrdma_directory.h"

#define REQUEST (8l + 128 + 256) /* softrdma/cm_saved.h */

static struct {
	int (*settle)(void), (*next)(int fd), (*join)(int accept);
	long (*save)(void *to, size_t room);
	int (*load)(const void *from, size_t n);
	int (*each)(int (*fn)(const void *own, const void *other, int fd, void *arg), void *arg);
	void (*hold)(int held);
	int (*lines)(int (*fn)(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg), void *arg);
	int (*here)(const void *address), (*close)(int fd);
} cm;

static void find_functions(void)
{
	cm.settle = (__typeof__(cm.settle))dlsym(RTLD_DEFAULT, "softrdma_cm_settle");
	cm.next = (__typeof__(cm.next))dlsym(RTLD_DEFAULT, "softrdma_cm_next");
	cm.join = (__typeof__(cm.join))dlsym(RTLD_DEFAULT, "softrdma_cm_join");
	cm.save = (__typeof__(cm.save))dlsym(RTLD_DEFAULT, "softrdma_cm_save");
	cm.load = (__typeof__(cm.load))dlsym(RTLD_DEFAULT, "softrdma_cm_load");
	cm.each = (__typeof__(cm.each))dlsym(RTLD_DEFAULT, "softrdma_cm_each");
	cm.hold = (__typeof__(cm.hold))dlsym(RTLD_DEFAULT, "softrdma_cm_hold");
	cm.lines = (__typeof__(cm.lines))dlsym(RTLD_DEFAULT, "softrdma_cm_lines");
	cm.here = (__typeof__(cm.here))dlsym(RTLD_DEFAULT, "softrdma_cm_here");
	cm.close = (__typeof__(cm.close))dlsym(RTLD_DEFAULT, "softrdma_cm_close");
	assert_true(cm.settle && cm.next && cm.join && cm.save && cm.load && cm.each && cm.hold && cm.lines && cm.here && cm.close);
}

static int is_of_cm(int fd)
{
	char link[32], to[256] = "";
	int type = 0;
	socklen_t len = sizeof(type);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, to, sizeof(to) - 1) < 0)
		return 0;
	return strstr(to, "/cm-ports") || (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_SEQPACKET);
}

/* The channels' numbers are kept, as /dev/null; the library is not told, but where it has a thread, which has to go. */
static void die(void)
{
	int null = open("/dev/null", O_RDONLY), fd;

	while (other_host() && (fd = cm.next(-1)) >= 0)
		if (cm.close(fd) || dup2(null, fd) != fd)
			fail();
	for (fd = 3; fd < 1024; fd++)
		if (is_of_cm(fd))
			syscall(SYS_close, fd);
	for (fd = -1; (fd = cm.next(fd)) >= 0;)
		if (dup2(null, fd) != fd)
			fail();
	close(null);
}

struct line {
	uint8_t own[17], other[17];
	uint32_t said, heard;
};

struct lines {
	struct line line[64];
	uint32_t count;
};

static int line_take(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg)
{
	struct lines *l = arg;
	struct line *n = &l->line[l->count++];

	assert_true(l->count <= 64 && strstr(where, "port"));
	memcpy(n->own, own, 17);
	memcpy(n->other, other, 17);
	n->said = said;
	n->heard = heard;
	return 0;
}

static struct lines lines_now(void)
{
	struct lines l = { .count = 0 };

	assert_int_equal(cm.lines(line_take, &l), 0);
	return l;
}

/* What the other end of each has heard is what this one has said. */
static int is_balanced(void)
{
	struct lines l = lines_now();

	for (uint32_t i = 0; i < l.count; i++) {
		uint32_t k = 0;

		while (k < l.count && memcmp(l.line[i].other, l.line[k].own, 17))
			k++;
		if (k == l.count || l.line[i].said != l.line[k].heard || l.line[i].heard != l.line[k].said)
			return 0;
	}
	return 1;
}

static void settled(void)
{
	int n;

	cm.hold(1);
	do {
		n = cm.settle();
		assert_true(n >= 0);
	} while (n || !is_balanced());
}

/* Programs of the other host are on this one now. */
static void come_together(void)
{
	struct sockaddr_in a = address(1);
	uint8_t ip[16] = { [10] = 0xff, [11] = 0xff };

	memcpy(ip + 12, &a.sin_addr, 4);
	if (other_host())
		assert_int_equal(cm.here(ip), 0);
}

/* A whole life: what was written is all that is left. How much longer what is written then is. */
static long life_next(void)
{
	long n, m;
	char *bytes;

	settled();
	n = cm.save(NULL, 0);
	assert_true(n > 0);
	bytes = malloc((size_t)n);
	m = cm.save(bytes, (size_t)n);
	assert_int_equal(m, n);
	die();
	assert_int_equal(cm.load(bytes, (size_t)n), 0);
	come_together();
	assert_int_equal(cm.join(0), 0);
	assert_int_equal(cm.join(1), 0);
	m = cm.save(NULL, 0);
	free(bytes);
	return m - n;
}

/* A request that had not been said takes up no place any more. */
static void life_again(void)
{
	long more = life_next();

	assert_true(!more || (other_host() && more == -REQUEST));
}

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
		cmocka_unit_test_setup(test_nothing, another_host), cmocka_unit_test_setup(test_alone, another_host), cmocka_unit_test_setup(test_unread, another_host),
		cmocka_unit_test_setup(test_stages, another_host),	cmocka_unit_test_setup(test_ends, another_host),  cmocka_unit_test_setup(test_many, another_host),
		cmocka_unit_test_setup(test_counts, another_host),	cmocka_unit_test_setup(test_held, another_host),  cmocka_unit_test_setup(test_held_for_nobody, another_host),
		cmocka_unit_test_setup(test_late, another_host),
		cmocka_unit_test_setup(test_query, another_host),
		cmocka_unit_test_setup(test_service, another_host), cmocka_unit_test_setup(test_group, another_host), cmocka_unit_test_setup(test_time, another_host),
		cmocka_unit_test_setup(test_port_taken, another_host),
	};

	find_functions();
	return cmocka_run_group_tests(tests, places_make, places_remove);
}
