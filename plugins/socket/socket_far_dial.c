/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RECONNECT of far connections (socket_far_restart.c): all ends of this process that connect do so before the first that listens accepts, so no process waits for one that waits for it: what
 * listens does since RECREATE. No state of its own.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/sys.h"
#include "plugins/socket/socket_far.h"

#define CONNECT_MS 4000
#define ACCEPT_MS 15000
#define HELLO_TRIES 2500 /* of 2 ms each */

static struct socket_name name_of(int domain, const uint8_t address[16], uint16_t port)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = port };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = port };
	struct socket_name n = { .length = domain == AF_INET ? sizeof(a4) : sizeof(a6) };

	memcpy(&a4.sin_addr, address + 12, 4);
	memcpy(&a6.sin6_addr, address, 16);
	memcpy(n.bytes, domain == AF_INET ? (void *)&a4 : (void *)&a6, n.length);
	return n;
}

static bool is_mapped(const uint8_t address[16])
{
	static const uint8_t head[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(address, head, sizeof(head));
}

static int dial(int fd, const struct socket_name *to)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	int r = socket_connect(fd, to);

	if (r == -EINPROGRESS) {
		r = socket_poll(fd, POLLOUT, CONNECT_MS);
		r = r > 0 ? -socket_get_int(fd, SOL_SOCKET, SO_ERROR) : r ? r : -ETIMEDOUT;
	}
	if (r)
		RAW3(SYS_connect, fd, &none, sizeof(none));
	return r;
}

/* Its own name stands in the way: without it. */
static int dial_unbound(struct far_end *e, const struct socket_name *to)
{
	int fd = socket_far_open(e), r = fd < 0 ? fd : dial(fd, to);

	if (r) {
		if (fd >= 0)
			raw_close(fd);
		return r;
	}
	raw_close(e->fd);
	e->fd = fdpass_park(fd);
	return e->fd < 0 ? e->fd : 0;
}

static int dial_address(struct far_end *e, const struct far_value *v, const uint8_t address[16])
{
	struct socket_name to = name_of(e->r->domain, address, v->port);
	int r;

	if (e->r->domain == AF_INET && !is_mapped(address))
		return -EAFNOSUPPORT;
	if (v->network != socket_network() && socket_is_local(&to))
		return -EHOSTUNREACH; /* another's of the same address: every machine may have it */
	r = dial(e->fd, &to);
	return r ? dial_unbound(e, &to) : 0;
}

static int dial_listener(struct far_end *e, const struct far_value *v)
{
	static const uint8_t loopback[2][16] = { { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 }, { [15] = 1 } };
	int r = -EHOSTUNREACH;

	if (v->network == socket_network() && !v->bound) {
		r = dial_address(e, v, loopback[0]);
		return r ? dial_address(e, v, loopback[1]) : 0;
	}
	for (uint32_t i = 0; i < v->count && i < SOCKET_ADDRESSES && r; i++)
		r = dial_address(e, v, v->addresses[i]);
	return r;
}

static int connect_one(struct far_end *e)
{
	const struct far_value *value = socket_far_value(e);
	struct far_value v;
	char text[72];
	int r;

	socket_name_text(&e->r->remote, text, sizeof(text));
	if (!value)
		return fermata_fail(-ENOTCONN, "fd %d: its peer at %s, process %u of another host, has not come back", e->number, text, e->r->peer_pid);
	memcpy(&v, value, sizeof(v));
	memcpy(e->own.token, v.token, sizeof(v.token));
	r = dial_listener(e, &v);
	if (!r && RAW6(SYS_sendto, e->fd, &e->own, sizeof(e->own), MSG_NOSIGNAL, 0, 0) != (long)sizeof(e->own))
		r = -ECONNRESET;
	socket_set_int(e->fd, IPPROTO_IP, 51 /* IP_LOCAL_PORT_RANGE */, 0);
	e->sent = sizeof(e->own);
	e->dialled = true;
	return r ? fermata_fail(r, "fd %d: its peer, which was at %s, cannot be reached on the machine where it has come back (errno %d)", e->number, text,
				-r) : 0;
}

static int connect_all(void)
{
	int r = 0;

	for (size_t i = 0; i < socket_far_list.count && !r; i++)
		if (!socket_far_list.ends[i].listens && !socket_far_list.ends[i].dialled)
			r = connect_one(&socket_far_list.ends[i]);
	return r;
}

static bool read_hello(int fd, struct far_end *e)
{
	size_t got = 0;

	for (int i = 0; i < HELLO_TRIES && got < sizeof(e->other); i++) {
		long n = socket_receive(fd, (char *)&e->other + got, sizeof(e->other) - got, 0);

		if (n == 0 || (n < 0 && n != -EAGAIN))
			return false;
		if (n < 0)
			socket_pause();
		else
			got += (size_t)n;
	}
	return got == sizeof(e->other) && !memcmp(e->other.token, e->own.token, sizeof(e->own.token));
}

static int accept_one(struct far_end *e)
{
	char text[72];

	while (socket_poll(e->fd, POLLIN, ACCEPT_MS) > 0) {
		int fd = (int)RAW4(SYS_accept4, e->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0 && read_hello(fd, e)) {
			raw_close(e->fd);
			e->fd = fd;
			e->got = sizeof(e->other);
			return 0;
		}
		if (fd >= 0)
			raw_close(fd);
	}
	socket_name_text(&e->r->remote, text, sizeof(text));
	return fermata_fail(-ETIMEDOUT, "fd %d: its peer, which was at %s, does not come to this machine", e->number, text);
}

int socket_far_reconnect(const struct fermata_desc *d)
{
	struct far_end *e = socket_far_find(d);
	int r = e ? connect_all() : -ENOTCONN, fd;

	if (!r && e->listens)
		r = accept_one(e);
	if (r)
		return r;
	fd = e->fd;
	e->fd = e->number;
	return fd;
}
