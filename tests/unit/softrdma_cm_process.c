/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm between processes: what a process's death tells the other end in each state, ports, and channels that a child inherits.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "softrdma_cm_util.h"
#include "thread_sleeps.h"

static int told[2];

static void say(char c) { assert_int_equal(write(told[1], &c, 1), 1); }

static void hear(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), 1);
}

/* The network's thread waits for something to come (a sanitizer's own sleeps). */
static int threads_rest(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;
	int rest = 1;

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		pid_t tid = atoi(d->d_name);

		rest &= tid <= 0 || tid == getpid() || thread_sleeps_in(tid, SYS_epoll_wait) || thread_sleeps_in(tid, SYS_nanosleep) || thread_sleeps_in(tid, SYS_clock_nanosleep);
	}
	closedir(dir);
	return rest;
}

/*
 * The one that holds on to what it has until it is killed. A child of a process one of whose threads just begins may hang with the address sanitizer, whose allocator a fork does not
 * put in order (GCC 12).
 */
static pid_t other_process(void (*run)(uint16_t port), uint16_t port)
{
	pid_t pid;

	while (!threads_rest())
		sched_yield();
	assert_int_equal(pipe(told), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		run(port);
		say('x');
		for (;;)
			pause();
	}
	hear(told[0]);
	return pid;
}

static void killed(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(told[0]);
	close(told[1]);
}

static void client_asks(uint16_t port)
{
	struct rdma_conn_param p = parameters();
	struct rdma_event_channel *ch = channel();

	assert_int_equal(rdma_connect(resolved(ch, RDMA_PS_TCP, port), &p), 0);
}

static struct rdma_cm_id *answered(uint16_t port)
{
	struct rdma_conn_param p = parameters();
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, port);

	assert_int_equal(rdma_connect(id, &p), 0);
	say('a');
	expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	return id;
}

static void client_is_answered(uint16_t port)
{
	answered(port);
}

static void client_connects(uint16_t port)
{
	assert_int_equal(rdma_establish(answered(port)), 0);
}

static struct rdma_cm_id *request(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *ev = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = ev->id;

	rdma_ack_cm_event(ev);
	return id;
}

/* The connecting process dies in each state: forked before this one has anything of its own. */
static void test_client_dies(void **state)
{
	struct rdma_conn_param p = parameters();
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listener(ch, RDMA_PS_TCP, 4), *id;
	pid_t pid;

	pid = other_process(client_asks, port_of(l));
	await(ch);
	killed(pid);
	id = request(ch);
	taken_back(ch, id);
	drop(&id);
	pid = other_process(client_is_answered, port_of(l));
	id = request(ch);
	assert_int_equal(rdma_accept(id, &p), 0);
	hear(told[0]);
	killed(pid);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&id);
	pid = other_process(client_connects, port_of(l));
	id = request(ch);
	assert_int_equal(rdma_accept(id, &p), 0);
	expect(ch, RDMA_CM_EVENT_ESTABLISHED);
	hear(told[0]);
	killed(pid);
	expect(ch, RDMA_CM_EVENT_DISCONNECTED);
	quiet(ch);
	drop(&id);
	drop(&l);
	rdma_destroy_event_channel(ch);
}

static void tell_port(struct rdma_cm_id *id)
{
	uint16_t port = port_of(id);

	say('x');
	assert_int_equal(write(told[1], &port, sizeof(port)), sizeof(port));
}

static uint16_t told_port(void)
{
	uint16_t port;

	assert_int_equal(read(told[0], &port, sizeof(port)), sizeof(port));
	return port;
}

static void server_listens(uint16_t port)
{
	tell_port(listener(channel(), RDMA_PS_TCP, 4));
}

static void server_has_request(uint16_t port)
{
	struct rdma_event_channel *ch = channel();

	tell_port(listener(ch, RDMA_PS_TCP, 4));
	request(ch);
	say('r');
}

static void server_accepts(uint16_t port)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_conn_param p = parameters();

	tell_port(listener(ch, RDMA_PS_TCP, 4));
	assert_int_equal(rdma_accept(request(ch), &p), 0);
	say('r');
	expect(ch, RDMA_CM_EVENT_ESTABLISHED);
}

/* An id whose request another process has, which does as @server says; it has said 'r' once. */
static struct rdma_cm_id *asked(struct rdma_event_channel *ch, void (*server)(uint16_t), pid_t *ret_pid)
{
	struct rdma_conn_param p = parameters();
	struct rdma_cm_id *id;

	*ret_pid = other_process(server, 0);
	id = resolved(ch, RDMA_PS_TCP, told_port());
	assert_int_equal(rdma_connect(id, &p), 0);
	hear(told[0]);
	return id;
}

static void test_server_dies(void **state)
{
	struct rdma_conn_param p = parameters();
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	pid_t pid;
	uint16_t port;
	int status;

	pid = other_process(server_listens, 0);
	port = told_port();
	ch = channel();
	id = resolved(ch, RDMA_PS_TCP, port);
	assert_int_equal(rdma_connect(id, &p), 0);
	killed(pid);
	status = expect(ch, RDMA_CM_EVENT_REJECTED); /* on another host, whether it has been there is not known */
	assert_true(status == NOBODY || (other_host() && status == 8));
	drop(&id);
	/* The port is free again, and its name is in nobody's way. */
	id = resolved(ch, RDMA_PS_TCP, port);
	assert_int_equal(rdma_connect(id, &p), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8);
	drop(&id);
	id = asked(ch, server_has_request, &pid);
	killed(pid);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&id);
	id = asked(ch, server_accepts, &pid);
	expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	killed(pid);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), NOBODY);
	drop(&id);
	id = asked(ch, server_accepts, &pid);
	expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(rdma_establish(id), 0);
	hear(told[0]);
	killed(pid);
	expect(ch, RDMA_CM_EVENT_DISCONNECTED);
	drop(&id);
	rdma_destroy_event_channel(ch);
}

static int try_bind(struct rdma_event_channel *ch, const char *ip, uint16_t port, int reuse, struct rdma_cm_id **ret_id)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(ip) };

	*ret_id = new_id(ch, RDMA_PS_TCP);
	assert_int_equal(rdma_set_option(*ret_id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)), 0);
	return rdma_bind_addr(*ret_id, (struct sockaddr *)&a) ? errno : 0;
}

static void check_ports(struct rdma_event_channel *ch, uint16_t port)
{
	struct rdma_cm_id *id, *other;

	assert_int_equal(try_bind(ch, "127.0.0.1", port, 0, &id), EADDRINUSE);
	drop(&id);
	assert_int_equal(try_bind(ch, "0.0.0.0", port, 0, &id), EADDRINUSE);
	drop(&id);
	assert_int_equal(try_bind(ch, "127.0.0.1", port, 1, &id), EADDRINUSE);
	drop(&id);
	assert_int_equal(try_bind(ch, "127.0.0.2", port, 0, &id), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	drop(&id);
	assert_int_equal(try_bind(ch, "127.0.0.3", port, 1, &id), 0);
	assert_int_equal(try_bind(ch, "127.0.0.3", port, 1, &other), 0);
	assert_int_equal(rdma_listen(id, 1), -1); /* who listens does not share */
	assert_int_equal(errno, EADDRINUSE);
	drop(&other);
	assert_int_equal(rdma_listen(id, 1), 0);
	drop(&id);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), 0); /* a space of its own */
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&(struct sockaddr_in){ .sin_family = AF_INET,
										       .sin_port = htons(port) }), 0);
	drop(&id);
}

static void test_ports(void **state)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *l;
	pid_t pid;

	pid = other_process(server_listens, 0);
	ch = channel();
	check_ports(ch, told_port());
	killed(pid);
	l = listener(ch, RDMA_PS_TCP, 1);
	check_ports(ch, port_of(l));
	drop(&l);
	rdma_destroy_event_channel(ch);
}

/* A child can close what it has inherited, and use channels of its own; the parent's go on. */
static void child_closes(uint16_t port)
{
	struct rdma_event_channel *ch;
	int fd;

	for (fd = 3; fd < 100; fd++)
		if (fd != told[1])
			close(fd);
	ch = channel();
	tell_port(listener(ch, RDMA_PS_TCP, 1));
	rdma_destroy_event_channel(ch);
}

static void test_fork(void **state)
{
	struct pair s = pair_to(CONNECTED);
	pid_t pid = other_process(child_closes, 0);

	told_port();
	hear(told[0]);
	killed(pid);
	quiet(s.here);
	quiet(s.there);
	assert_int_equal(rdma_disconnect(s.client), 0);
	expect(s.there, RDMA_CM_EVENT_DISCONNECTED);
	pair_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_client_dies), cmocka_unit_test(test_server_dies), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_ports), /* on one host only */
	};

	return run_places(tests, sizeof(tests) / sizeof(*tests), 1);
}
