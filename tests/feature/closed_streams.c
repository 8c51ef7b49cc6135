/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that one end has closed, or shut down, while the other had not taken all: what is left, and then the end, comes once. And such as nobody has accepted yet, whose client has
 * said already that it sends nothing. And unix
 * sockets whose other end was closed with something unread: the program is told of that, once, in its place.
 */
#include "loopback.h"

#include <poll.h>
#include <sys/un.h>

#define ANSWER (1u << 20) /* more than a receive buffer takes at first */

static char answer[ANSWER];

enum { ASKED = 1, SHUT_BEFORE = 2, NARROW = 4, KEPT = 8, ALONE = 16, V6 = 32 };

/* The server's answer is under way, and it is closed: how a client came to that. */
static struct stream {
	const char *name;
	int how, client, server;
	size_t sent;
} streams[] = {
	{ .name = "sent nothing", .how = 0 },
	{ .name = "asked", .how = ASKED },
	{ .name = "asked, and shut down", .how = ASKED | SHUT_BEFORE },
	{ .name = "a buffer of its own", .how = ASKED | NARROW },
	{ .name = "no listener any more", .how = ASKED | ALONE },
	{ .name = "IPv6", .how = V6 },
	{ .name = "shut down only", .how = ASKED | KEPT },
	{ .name = "shut down at both ends", .how = SHUT_BEFORE | KEPT },
};
#define STREAMS (sizeof(streams) / sizeof(streams[0]))

static int listener, listener6, local, waiting, waiting_local;
static struct sockaddr_in at;
static struct sockaddr_in6 at6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
static struct sockaddr_un at_local = { .sun_family = AF_UNIX };

static void make_listeners(void)
{
	socklen_t length = sizeof(at6);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	bind_loopback(listener, &at);
	listener6 = socket(AF_INET6, SOCK_STREAM, 0);
	if (listener6 >= 0 && bind(listener6, (struct sockaddr *)&at6, sizeof(at6)) == 0)
		CHECK(listen(listener6, 5) == 0 && getsockname(listener6, (struct sockaddr *)&at6, &length) == 0);
	else
		at6.sin6_port = 0;
	local = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(at_local.sun_path + 1, sizeof(at_local.sun_path) - 1, "closed_streams-%d", getpid());
	CHECK(listen(listener, 5) == 0 && bind(local, (struct sockaddr *)&at_local, sizeof(at_local)) == 0 && listen(local, 5) == 0);
}

static int dial(int family, const void *address, socklen_t length, int narrow)
{
	int fd = socket(family, SOCK_STREAM, 0), size = 2048;

	CHECK(fd >= 0 && (!narrow || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0));
	CHECK(connect(fd, address, length) == 0);
	return fd;
}

static void send_answer(struct stream *s)
{
	char c;

	if (s->how & ASKED)
		CHECK(send(s->client, "?", 1, 0) == 1 && recv(s->server, &c, 1, MSG_WAITALL) == 1);
	if (s->how & SHUT_BEFORE)
		CHECK(shutdown(s->client, SHUT_WR) == 0 && recv(s->server, &c, 1, 0) == 0);
	for (ssize_t n; s->sent < ANSWER; s->sent += (size_t)n) {
		n = send(s->server, answer + s->sent, ANSWER - s->sent, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			break;
		CHECK(n > 0);
	}
	CHECK(s->how & KEPT ? shutdown(s->server, SHUT_WR) == 0 : close(s->server) == 0);
}

static void make(struct stream *s)
{
	struct sockaddr_in apart;
	int from = s->how & V6 ? listener6 : listener;

	if (s->how & V6) {
		s->client = dial(AF_INET6, &at6, sizeof(at6), 0);
	} else if (s->how & ALONE) {
		from = socket(AF_INET, SOCK_STREAM, 0);
		bind_loopback(from, &apart);
		CHECK(listen(from, 1) == 0);
		s->client = dial(AF_INET, &apart, sizeof(apart), 0);
	} else {
		s->client = dial(AF_INET, &at, sizeof(at), s->how & NARROW);
	}
	CHECK((s->server = accept(from, NULL, NULL)) >= 0);
	send_answer(s);
	if (s->how & ALONE)
		CHECK(close(from) == 0);
}

static void check(struct stream *s)
{
	static char got[ANSWER];
	uint64_t begun = feature_now(CLOCK_MONOTONIC);
	size_t n = 0;

	while (n < s->sent) {
		ssize_t more = recv(s->client, got + n, s->sent - n, 0);

		if (more <= 0)
			feature_fail("%s: %zu of %zu bytes, then %zd (errno %d)", s->name, n, s->sent, more, errno);
		n += (size_t)more;
	}
	CHECK(memcmp(got, answer, n) == 0);
	if (feature_now(CLOCK_MONOTONIC) - begun > 5000000000u) /* where segments are larger than the window: 10 s and more */
		feature_fail("%s: what was left has come too slowly", s->name);
	if (recv(s->client, got, 1, 0) != 0)
		feature_fail("%s: no end behind the answer (errno %d)", s->name, errno);
	if (s->how & KEPT && !(s->how & SHUT_BEFORE))
		CHECK(send(s->client, "!", 1, 0) == 1 && recv(s->server, got, 1, MSG_WAITALL) == 1 && *got == '!');
	CHECK(close(s->client) == 0 && (!(s->how & KEPT) || close(s->server) == 0));
}

/* That has been in the queue since before: it sends nothing, but takes. */
static void check_accepted(int from, int client)
{
	int server = accept(from, NULL, NULL);
	char c;

	CHECK(server >= 0 && recv(server, &c, 1, 0) == 0);
	CHECK(send(server, "a", 1, 0) == 1 && recv(client, &c, 1, 0) == 1 && c == 'a' && close(server) == 0 && close(client) == 0);
}

static int reset_stream, reset_packets, reset_waiting;

/* One end, which has something to read, and of the other nobody has read. */
static int reset_pair(int type, const char *left)
{
	int ends[2];

	CHECK(socketpair(AF_UNIX, type, 0, ends) == 0 && send(ends[0], "unread", 6, 0) == 6);
	CHECK((!left || send(ends[1], left, strlen(left), 0) > 0) && close(ends[1]) == 0);
	return ends[0];
}

static void make_resets(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int closes = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "closed_streams-%d-closes", getpid());
	CHECK(bind(closes, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(closes, 1) == 0);
	reset_waiting = dial(AF_UNIX, &a, sizeof(a), 0);
	CHECK(close(closes) == 0);
	reset_stream = reset_pair(SOCK_STREAM, "left");
	reset_packets = reset_pair(SOCK_SEQPACKET, NULL);
}

static void check_reset(int fd)
{
	char c;

	CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == ECONNRESET);
	CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == 0 && send(fd, "a", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && close(fd) == 0);
}

static void check_resets(void)
{
	char got[8];

	CHECK(recv(reset_stream, got, sizeof(got), MSG_DONTWAIT) == 4 && memcmp(got, "left", 4) == 0);
	check_reset(reset_stream);
	check_reset(reset_packets);
	check_reset(reset_waiting);
}

int main(void)
{
	for (size_t i = 0; i < ANSWER; i++)
		answer[i] = (char)(i * 31 + i / 4093);
	make_listeners();
	for (size_t i = 0; i < STREAMS; i++)
		if (!(streams[i].how & V6) || at6.sin6_port)
			make(&streams[i]);
	waiting = dial(AF_INET, &at, sizeof(at), 0);
	waiting_local = dial(AF_UNIX, &at_local, sizeof(at_local), 0);
	CHECK(shutdown(waiting, SHUT_WR) == 0 && shutdown(waiting_local, SHUT_WR) == 0);
	make_resets();
	feature_ready();
	do
		feature_work();
	while (feature_step());
	for (size_t i = 0; i < STREAMS; i++)
		if (streams[i].client)
			check(&streams[i]);
	check_accepted(listener, waiting);
	check_accepted(local, waiting_local);
	check_resets();
	return 0;
}
