/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that are being set up: the listener's queue is full, and some clients wait in it, others for a place: by poll, and a thread in connect. In the end each is accepted, once, and is told its own port. And
 * two that were refused, of which the program has asked why, or not yet.
 */
#include "loopback.h"

#include <poll.h>
#include <pthread.h>

#define CLIENTS 4 /* as many wait for a place as there are: those that come at once and find none left are lost by the kernel */
#define PATIENCE_MS 60000 /* the kernel asks after 1, 2, 4, .. seconds */

static int clients[CLIENTS];
static uint16_t ports[CLIENTS];
static struct sockaddr_in at;

static uint16_t port_of(int fd)
{
	struct sockaddr_in a;
	socklen_t length = sizeof(a);

	CHECK(getsockname(fd, (struct sockaddr *)&a, &length) == 0);
	return a.sin_port;
}

/* The port is one that the kernel gives. */
static int open_client(int flags)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	return fd;
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t length = sizeof(error);

	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
	return error;
}

/* By a port that nobody listens at. */
static int refused(void)
{
	int silent = open_client(0), fd = open_client(SOCK_NONBLOCK);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port_of(silent) };
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	CHECK(connect(fd, (struct sockaddr *)&a, sizeof(a)) == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
	CHECK(poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLHUP && close(silent) == 0);
	return fd;
}

/* It may be tried again by the same socket: the kernel does not take it for connected. */
static void check_refused(int fd, int error)
{
	CHECK(error_of(fd) == error);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno != EISCONN);
	CHECK(close(fd) == 0);
}

static void *connect_blocked(void *arg)
{
	CHECK(connect(clients[CLIENTS - 1], (struct sockaddr *)&at, sizeof(at)) == 0);
	return arg;
}

static void check_client(int i)
{
	struct pollfd p = { .fd = clients[i], .events = POLLOUT };
	uint16_t told;

	CHECK(poll(&p, 1, PATIENCE_MS) == 1 && error_of(clients[i]) == 0);
	p.events = POLLIN;
	CHECK(poll(&p, 1, PATIENCE_MS) == 1 && recv(clients[i], &told, sizeof(told), 0) == sizeof(told));
	CHECK(told == port_of(clients[i]) && told == ports[i] && close(clients[i]) == 0);
}

int main(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), told = refused(), untold = refused();
	struct pollfd p = { .fd = listener, .events = POLLIN };
	pthread_t thread;

	bind_loopback(listener, &at);
	CHECK(listen(listener, 1) == 0);
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = open_client(i < CLIENTS - 1 ? SOCK_NONBLOCK : 0);
		ports[i] = port_of(clients[i]);
		CHECK(i == CLIENTS - 1 || connect(clients[i], (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
	}
	CHECK(error_of(told) == ECONNREFUSED);
	CHECK(pthread_create(&thread, NULL, connect_blocked, NULL) == 0);
	feature_ready();
	do
		feature_work();
	while (feature_step());
	for (int i = 0; i < CLIENTS; i++) {
		struct sockaddr_in from;
		socklen_t length = sizeof(from);
		int fd;

		CHECK(poll(&p, 1, PATIENCE_MS) == 1 && (fd = accept(listener, (struct sockaddr *)&from, &length)) >= 0);
		CHECK(send(fd, &from.sin_port, sizeof(from.sin_port), 0) == sizeof(from.sin_port) && close(fd) == 0);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	check_refused(told, 0);
	check_refused(untold, ECONNREFUSED);
	for (int i = 0; i < CLIENTS; i++)
		check_client(i);
	return 0;
}
