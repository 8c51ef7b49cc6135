/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stream sockets between two processes, over TCP and over unix sockets, with bytes in flight in both directions at any moment;
 * options; one half-closed; one whose peer is gone; new connections to a listening socket that is there all the time.
 */
#include "loopback.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

struct stream {
	int fd;
	uint32_t sent, got; /* numbers put and taken; the peer's begin at 0 as well */
};

static int tcp_listener, half[2], gone[2];
static struct sockaddr_in address;

static void put(struct stream *s, unsigned int n)
{
	while (n--) {
		CHECK(send(s->fd, &s->sent, 4, MSG_NOSIGNAL) == 4);
		s->sent++;
	}
}

/* As many as have come, at least one. 0: the peer has closed. */
static int take(struct stream *s, int flags)
{
	uint32_t value[256];
	ssize_t n = recv(s->fd, value, sizeof(value), flags);

	if (n == -1 && errno == EAGAIN && flags)
		return 1;
	if (n <= 0) {
		CHECK(n == 0);
		return 0;
	}
	while (n % 4)
		CHECK(recv(s->fd, (char *)value + n, 1, 0) == 1 && ++n);
	for (ssize_t i = 0; i < n / 4; i++)
		CHECK(value[i] == s->got++);
	return 1;
}

static void child(struct stream *streams)
{
	int open_streams = 2;

	while (open_streams) {
		open_streams = 2;
		for (int i = 0; i < 2; i++) {
			struct pollfd p = { .fd = streams[i].fd, .events = POLLIN };

			CHECK(poll(&p, 1, 1) >= 0);
			if (p.revents && !take(&streams[i], MSG_DONTWAIT))
				open_streams--;
			else if (streams[i].sent < streams[i].got)
				put(&streams[i], streams[i].got - streams[i].sent);
		}
		if (open_streams == 1)
			CHECK(feature_finished());
	}
	_exit(0);
}

static void make_tcp(int fds[2])
{
	socklen_t len = sizeof(address);
	int one = 1;

	bind_loopback(tcp_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), &address);
	CHECK(listen(tcp_listener, 8) == 0);
	CHECK((fds[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	CHECK(connect(fds[0], (struct sockaddr *)&address, len) == 0);
	CHECK((fds[1] = accept(tcp_listener, NULL, NULL)) >= 0);
	CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
}

static void options_check(int tcp)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(int), name_len = sizeof(name);
	int value;
	char c;

	CHECK(getsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1);
	CHECK(getsockopt(tcp, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == 0);
	/* Its port may be another one after a restart, where the old one is taken. */
	CHECK(getpeername(tcp, (struct sockaddr *)&name, &name_len) == 0 && name.sin_family == AF_INET);
	CHECK(getsockname(tcp_listener, (struct sockaddr *)&name, &name_len) == 0 && name.sin_port == address.sin_port);
	CHECK(recv(half[0], &c, 1, 0) == 0 && send(half[0], "h", 1, MSG_NOSIGNAL) == 1);
	CHECK(recv(half[1], &c, 1, 0) == 1 && c == 'h');
	CHECK(send(half[1], "h", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(recv(gone[0], &c, 1, 0) == 0 && send(gone[0], "g", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}

static void connect_again(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), other;

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK((other = accept(tcp_listener, NULL, NULL)) >= 0);
	CHECK(close(fd) == 0 && close(other) == 0);
}

int main(void)
{
	int tcp[2], local[2], status;
	struct stream mine[2];
	pid_t pid;

	make_tcp(tcp);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, local) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, gone) == 0 && close(gone[1]) == 0);
	CHECK(shutdown(half[1], SHUT_WR) == 0);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		CHECK(close(tcp[0]) == 0 && close(local[0]) == 0);
		child((struct stream[2]){ { .fd = tcp[1] }, { .fd = local[1] } });
	}
	CHECK(close(tcp[1]) == 0 && close(local[1]) == 0);
	mine[0] = (struct stream){ .fd = tcp[0] };
	mine[1] = (struct stream){ .fd = local[0] };
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 2; i++) {
			put(&mine[i], 50);
			while (mine[i].sent - mine[i].got > 200)
				CHECK(take(&mine[i], 0));
		}
		options_check(tcp[0]);
		connect_again();
	} while (feature_step());
	for (int i = 0; i < 2; i++) {
		while (mine[i].got < mine[i].sent)
			CHECK(take(&mine[i], 0));
		CHECK(close(mine[i].fd) == 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
