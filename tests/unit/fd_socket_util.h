/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of sockets share: connections of each kind, content that is known, and the descriptors' plugins. */
#pragma once

#include <stddef.h>
#include <sys/socket.h>

#include "tests/lib/fake_host.h"

/* Both ends of the connection under test, and what makes it. */
extern int end[2];
extern void (*connected)(int ends[2]);

void unix_pair(int ends[2]);
void unix_named(int ends[2]);
void tcp4_pair(int ends[2]);
void tcp6_pair(int ends[2]);
/* A server that listens on [::] and a client that comes by IPv4: mapped addresses on one side. */
void tcp_mixed(int ends[2]);

/* On the loopback, at a port that the kernel chooses. */
int tcp_listener(int family, struct sockaddr_storage *a, socklen_t *len);
void tcp_connect(int l, struct sockaddr_storage *a, socklen_t len, int ends[2]);

/* Sends @n bytes, in pieces of @piece, as far as there is room. How many. */
size_t socket_fill(int fd, size_t n, size_t piece);
/* Receives them, and checks them. */
void socket_drain(int fd, size_t n);
void socket_check_empty(int fd);
/* Sends one byte, 'f', and @fd with it. */
void socket_pass(int over, int fd);

/* A test of so many processes, on a connection of that kind. */
#define TEST(name, members, body, make)              \
	static void test_##name(void **state)         \
	{                                             \
		connected = make;                     \
		fake_run(members, body);              \
	}
