/* SPDX-License-Identifier: BSD-2-Clause */
#include "fd_socket_util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/fd_table.h"

extern const struct fermata_plugin plugin_file, plugin_pipe, plugin_socket;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, &plugin_socket, NULL };

int end[2];
void (*connected)(int ends[2]);

void unix_pair(int ends[2])
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
}

void unix_named(int ends[2])
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int l = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/fermata-fd-%d", getpid());
	CHECK(bind(l, (void *)&a, sizeof(a)) == 0 && listen(l, 1) == 0);
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)&a, sizeof(a)) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(l);
	unlink(a.sun_path);
}

int tcp_listener(int family, struct sockaddr_storage *a, socklen_t *len)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int l = socket(family, SOCK_STREAM, 0);

	memset(a, 0, sizeof(*a));
	*len = sizeof(*a);
	CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, 4) == 0);
	if (family == AF_INET)
		CHECK(bind(l, (void *)&a4, sizeof(a4)) == 0);
	else
		CHECK(bind(l, (void *)&a6, sizeof(a6)) == 0);
	CHECK(listen(l, 7) == 0 && getsockname(l, (void *)a, len) == 0);
	return l;
}

void tcp_connect(int l, struct sockaddr_storage *a, socklen_t len, int ends[2])
{
	ends[0] = socket(a->ss_family, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)a, len) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
}

static void tcp_family(int family, int ends[2])
{
	struct sockaddr_storage a;
	socklen_t len;
	int l = tcp_listener(family, &a, &len);

	tcp_connect(l, &a, len, ends);
	close(l);
}

void tcp4_pair(int ends[2]) { tcp_family(AF_INET, ends); }
void tcp6_pair(int ends[2]) { tcp_family(AF_INET6, ends); }

void tcp_mixed(int ends[2])
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(any);
	int l = socket(AF_INET6, SOCK_STREAM, 0);

	CHECK(bind(l, (void *)&any, sizeof(any)) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&any, &len) == 0);
	a4.sin_port = any.sin6_port;
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)&a4, sizeof(a4)) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(l);
}

size_t socket_fill(int fd, size_t n, size_t piece)
{
	static char buf[1 << 16];
	size_t at = 0;

	while (at < n) {
		size_t want = n - at < piece ? n - at : piece;
		ssize_t got;

		for (size_t i = 0; i < want; i++)
			buf[i] = (char)((at + i) * 13 + (at + i) / 251);
		got = send(fd, buf, want, MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN)
			break;
		CHECK(got > 0);
		at += (size_t)got;
	}
	return at;
}

void socket_drain(int fd, size_t n)
{
	static char buf[1 << 16];
	size_t at = 0;

	while (at < n) {
		ssize_t got = recv(fd, buf, n - at < sizeof(buf) ? n - at : sizeof(buf), 0);

		CHECK(got > 0);
		for (size_t i = 0; i < (size_t)got; i++)
			CHECK(buf[i] == (char)((at + i) * 13 + (at + i) / 251));
		at += (size_t)got;
	}
}

void socket_check_empty(int fd)
{
	char c;

	CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

void socket_pass(int over, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'f';
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	CHECK(sendmsg(over, &m, 0) == 1);
}
