/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_cm_util.h"
#include "softrdma_directory.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY "0123456789abcdef0123456789abcdef"
#define FIRST_PORT 28672 /* doc/softrdma-protocol.md */
#define PORTS 4096

static char key_path[64];
static uint32_t net; /* its hosts' addresses but for the last byte */
static uint32_t other = 2;

int other_host(void)
{
	return getenv("END_HOSTS") != NULL;
}

static int network_make(void)
{
	char text[32];
	FILE *f;

	net = 127u << 24 | 78u << 16 | (1u + (uint32_t)getpid() % 250) << 8;
	snprintf(text, sizeof(text), "127.78.%u.1", net >> 8 & 255);
	snprintf(key_path, sizeof(key_path), "/dev/shm/softrdma-cm-key-%d", getpid());
	f = fopen(key_path, "w");
	if (!f || fchmod(fileno(f), 0600) || fputs(KEY, f) < 0 || fclose(f))
		return 1;
	return setenv("SOFTRDMA_KEY", key_path, 1) || setenv("SOFTRDMA_ADDRESS", text, 1);
}

int another_host(void **state)
{
	other++;
	return 0;
}

int places_make(void **state)
{
	return directory_make(state) || (other_host() && network_make());
}

int places_remove(void **state)
{
	if (other_host())
		unlink(key_path);
	return directory_remove(state);
}

int run_places(const struct CMUnitTest *tests, size_t n, size_t one_host)
{
	return _cmocka_run_group_tests("tests", tests, other_host() ? n - one_host : n, places_make, places_remove);
}

struct sockaddr_in address(uint16_t port)
{
	uint32_t to = !other_host() ? INADDR_LOOPBACK : port ? net | other : INADDR_ANY;

	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(to) };
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
	/* That may have been time to ask once more, of whom nobody has listened to yet; on another host also what tells an end what it knows, by itself (RTU after rdma_notify). */
	while (rdma_get_cm_event(ch, &ev)) {
		assert_true((other_host() || type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_UNREACHABLE) && errno == EAGAIN);
		assert_int_equal(poll(&p, 1, 20000), 1);
	}
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

void asks_on(struct rdma_event_channel *ch, struct rdma_event_channel *there)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN }, heard = { .fd = there->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	while (!poll(&heard, 1, 0)) {
		assert_int_equal(poll(&p, 1, 20000), 1);
		assert_int_equal(rdma_get_cm_event(ch, &ev), -1);
		assert_int_equal(errno, EAGAIN);
	}
}

void await(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 20000), 1);
}

struct rdma_cm_id *listener_at(struct rdma_event_channel *ch, uint16_t port)
{
	struct sockaddr_in a = address(0);
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	a.sin_port = htons(port);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(id, 8), 0);
	return id;
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
	await(s.there);
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

void taken_back(struct rdma_event_channel *ch, struct rdma_cm_id *server)
{
	struct rdma_conn_param p = { .qp_num = 1 };

	if (rdma_accept(server, &p))
		assert_int_equal(errno, EINVAL);
	else if (other_host())
		expect(ch, RDMA_CM_EVENT_REJECTED);
	else
		fail();
}

uint16_t first_slot(uint16_t port)
{
	return (uint16_t)(FIRST_PORT + (port * 0x9e3779b1u >> 20) % PORTS);
}

void same_slots(uint16_t port[3])
{
	int n = 1, p;

	port[0] = 7001;
	for (p = 7002; p < 65536 && n < 3; p++)
		if (first_slot((uint16_t)p) == first_slot(port[0]))
			port[n++] = (uint16_t)p;
	assert_int_equal(n, 3);
}

static void stranger_run(int fd, int heard, const char *words)
{
	int guest;

	for (;;) {
		guest = accept(fd, NULL, NULL);
		if (guest < 0 || write(heard, "x", 1) != 1 || write(guest, words, strlen(words)) < 0)
			_exit(1);
		close(guest);
	}
}

struct stranger stranger_begin(uint16_t tcp_port, const char *words)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(tcp_port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), heard[2], one = 1;
	struct stranger s;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(pipe2(heard, O_NONBLOCK), 0);
	s = (struct stranger){ .pid = fork(), .heard = heard[0] };
	if (!s.pid) {
		signal(SIGPIPE, SIG_IGN);
		stranger_run(fd, heard[1], words);
	}
	close(fd);
	close(heard[1]);
	return s;
}

int stranger_end(struct stranger *s)
{
	char times[64];
	ssize_t n = read(s->heard, times, sizeof(times));

	assert_int_equal(kill(s->pid, SIGKILL), 0);
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
	close(s->heard);
	return (int)n;
}
