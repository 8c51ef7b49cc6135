/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes both ends of a connection within one process; the peer then takes its end from there. Nobody else has to be waited for, and
 * no stranger can get in between. Owns nothing between calls; the listener that is needed lives for the call.
 *
 * Names. Each end should report its old address. TCP: one end listens at its address for a moment, the other binds to its own and
 * connects. SO_REUSEADDR lets that be: several connections of a job share a server's port, and its listener comes
 * last, in RECONNECT. The port may be in use for that moment by another process of the job that does the same (tried
 * again), be in TIME_WAIT after the job was killed (IP_LOCAL_PORT_RANGE of kernel 6.3 lets connect take it), or be
 * taken for good: then the connection is made with another port, and last on the loopback address.
 *
 * TCP's segments are as large as the route takes them (64 KiB on loopback), but not more than half of the largest window that was ever told. A program that has made a receive buffer smaller than that did so before it
 * connected, or after; its size is set again last, for the content has to fit in (socket_queue.c). A sender then waits for a window that never becomes large enough for a segment, and sends what fits each time that a timer
 * asks it to, 5 times a second. So an end whose buffer will be narrow tells the other to send smaller ones.
 *
 * Unix: likewise where one end has a name, under a lock on the path's directory that all makers take.
 */
#include <errno.h>
#include <linux/un.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

#define CONNECT_MS 5000

#define NARROW 65536u

struct place { /* one end to be */
	int domain, type;
	struct socket_name name;
	uint32_t buffer; /* TCP: for receiving, as it will be; 0: not known */
};

static bool is_named(const struct socket_name *n)
{
	return n->length > 2;
}

static uint16_t port_of(const struct socket_name *n)
{
	return (uint16_t)(n->bytes[2] << 8 | n->bytes[3]);
}

static void set_port(struct socket_name *n, uint16_t port)
{
	n->bytes[2] = (uint8_t)(port >> 8);
	n->bytes[3] = (uint8_t)port;
}

/* The same address for a socket of @domain: an IPv4 address is a mapped one of IPv6. */
static struct socket_name for_domain(const struct socket_name *n, int domain)
{
	struct socket_name r = *n;
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	uint16_t family;

	memcpy(&family, n->bytes, sizeof(family));
	if (family == domain)
		return r;
	memset(&r, 0, sizeof(r));
	if (domain == AF_INET6) {
		memcpy(&a4, n->bytes, sizeof(a4));
		a6.sin6_port = a4.sin_port;
		memset(&a6.sin6_addr.s6_addr[10], 0xff, 2);
		memcpy(&a6.sin6_addr.s6_addr[12], &a4.sin_addr, 4);
		memcpy(r.bytes, &a6, sizeof(a6));
		r.length = sizeof(a6);
	} else {
		memcpy(&a6, n->bytes, sizeof(a6));
		a4.sin_port = a6.sin6_port;
		memcpy(&a4.sin_addr, &a6.sin6_addr.s6_addr[12], 4);
		memcpy(r.bytes, &a4, sizeof(a4));
		r.length = sizeof(a4);
	}
	return r;
}

static int open_socket(const struct place *p)
{
	int fd = (int)RAW3(SYS_socket, p->domain, p->type | SOCK_CLOEXEC, 0);

	if (fd >= 0 && p->domain != AF_UNIX)
		socket_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (fd >= 0 && p->buffer && p->buffer < NARROW)
		socket_set_int(fd, IPPROTO_TCP, TCP_MAXSEG, (int)(p->buffer / 4));
	return fd;
}

/* It is told in the handshake only. */
static void segments_free(const struct place *p, int fd)
{
	if (p->buffer && p->buffer < NARROW)
		socket_set_int(fd, IPPROTO_TCP, TCP_MAXSEG, 0);
}

/* A port in TIME_WAIT cannot be bound to, but connect may take it where the range is but that port. */
int socket_bind_connecting(int fd, int domain, const struct socket_name *from)
{
	struct socket_name address = *from;
	uint32_t port = port_of(from);
	int r = socket_bind(fd, from);

	if (r != -EADDRINUSE || domain == AF_UNIX || !port)
		return r;
	set_port(&address, 0);
	r = socket_set_int(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, 1);
	if (!r)
		r = socket_set_int(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, (int)(port << 16 | port));
	return r ? -EADDRINUSE : socket_bind(fd, &address);
}

int socket_connect_from(int fd, int domain, const struct socket_name *from, const struct socket_name *to)
{
	struct socket_name target = domain == AF_UNIX ? *to : for_domain(to, domain);
	int r = is_named(from) ? socket_bind_connecting(fd, domain, from) : 0;

	if (!r)
		r = socket_connect(fd, &target);
	if (!r && domain != AF_UNIX)
		socket_set_int(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0);
	return r;
}

static int connect_end(const struct place *from, const struct socket_name *to, int *ret)
{
	int fd = open_socket(from), r = fd;

	if (r >= 0)
		r = socket_connect_from(fd, from->domain, &from->name, to);
	if (r < 0 && fd >= 0)
		raw_close(fd);
	*ret = r < 0 ? -EBADF : fd;
	return r < 0 ? r : 0;
}

/* Accepts until it is @connected that has come: anybody may dial a port. */
static int accept_end(int listener, int connected)
{
	struct socket_name own, other;

	if (socket_name_get(connected, false, &own) < 0)
		return -ECONNABORTED;
	while (socket_poll(listener, POLLIN, CONNECT_MS) > 0) {
		int fd = (int)RAW4(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
		uint16_t family;

		if (fd < 0)
			return fd;
		memcpy(&family, own.bytes, sizeof(family));
		if (family == AF_UNIX)
			return fd;
		if (!socket_name_get(fd, true, &other)) {
			other = for_domain(&other, family);
			if (port_of(&other) == port_of(&own))
				return fd;
		}
		raw_close(fd);
	}
	return -ETIMEDOUT;
}

/* One end at @listen, the other from @from. */
static int link_ends(const struct place *listen, const struct place *from, int *ret_listen, int *ret_from)
{
	int listener = open_socket(listen), r = listener, connected = -EBADF;
	struct socket_name at;

	if (r >= 0)
		r = socket_bind(listener, &listen->name);
	if (!r)
		r = (int)RAW2(SYS_listen, listener, 8);
	if (!r)
		r = socket_name_get(listener, false, &at);
	if (!r)
		r = connect_end(from, &at, &connected);
	if (!r) {
		r = accept_end(listener, connected);
		if (r < 0)
			raw_close(connected);
	}
	if (listener >= 0)
		raw_close(listener);
	if (r < 0)
		return r;
	*ret_listen = r;
	*ret_from = connected;
	segments_free(listen, r);
	segments_free(from, connected);
	return 0;
}

/* The port is in use, or TIME_WAIT has answered in the place of the listener. */
static bool may_pass(int err)
{
	return err == -EADDRINUSE || err == -EADDRNOTAVAIL || err == -ECONNREFUSED || err == -ECONNRESET ||
	       err == -ECONNABORTED || err == -ETIMEDOUT;
}

/* Whether the address is this machine's: of another's no port ever becomes free. */
static bool is_here(const struct place *p)
{
	struct place any = *p;
	int fd = open_socket(p), r;

	set_port(&any.name, 0);
	r = fd < 0 ? fd : socket_bind(fd, &any.name);
	if (fd >= 0)
		raw_close(fd);
	return r != -EADDRNOTAVAIL;
}

/* Both with their old names, whichever way round the ports allow. */
static int link_exact(const struct place *own, const struct place *peer, int ret[2])
{
	const struct timespec pause = { 0, SOCKET_TRY_NS };
	int r = -EADDRINUSE;

	if (!is_here(own) || !is_here(peer))
		return -EADDRNOTAVAIL;
	for (int i = 0; i < SOCKET_TRIES && may_pass(r); i++) {
		if (i)
			RAW2(SYS_nanosleep, &pause, NULL);
		r = link_ends(peer, own, &ret[1], &ret[0]);
		if (may_pass(r))
			r = link_ends(own, peer, &ret[0], &ret[1]);
	}
	return r;
}

static struct place loopback(int domain)
{
	struct place p = { .domain = domain, .type = SOCK_STREAM };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	p.name.length = domain == AF_INET ? sizeof(a4) : sizeof(a6);
	if (domain == AF_INET)
		memcpy(p.name.bytes, &a4, sizeof(a4));
	else
		memcpy(p.name.bytes, &a6, sizeof(a6));
	return p;
}

static int tcp_pair(int number, const struct socket_record *rec, int ret[2])
{
	int peer_domain = rec->peer_domain ? rec->peer_domain : rec->domain, r = -EADDRNOTAVAIL;
	struct place own = { rec->domain, SOCK_STREAM, rec->local, rec->receive_buffer }, peer = { peer_domain, SOCK_STREAM, rec->remote, rec->peer_receive_buffer };
	char text[72];

	if (is_named(&rec->remote)) {
		peer.name = for_domain(&rec->remote, peer_domain);
		r = link_exact(&own, &peer, ret);
		if (!r)
			return 0;
		set_port(&own.name, 0);
		set_port(&peer.name, 0);
		r = link_ends(&peer, &own, &ret[1], &ret[0]);
	}
	if (r) { /* a mixed pair meets on IPv4 */
		bool mixed = rec->domain != peer_domain;

		own = loopback(mixed ? AF_INET : rec->domain);
		own.buffer = rec->receive_buffer;
		own.name = for_domain(&own.name, rec->domain);
		own.domain = rec->domain;
		peer = (struct place){ peer_domain, SOCK_STREAM, for_domain(&own.name, peer_domain), rec->peer_receive_buffer };
		r = link_ends(&peer, &own, &ret[1], &ret[0]);
	}
	socket_name_text(&rec->local, text, sizeof(text));
	if (!r && rec->kind == SOCKET_CONNECTED)
		log_warn("fd %d: the address %s or that of its peer is in use, or not of this machine: the connection has another one", number, text);
	return r;
}

/* A lock on the directory of a path; -ENOENT for an abstract name. */
static int lock_directory(const struct socket_name *n)
{
	char path[sizeof(n->bytes) + 1] = { 0 }, *slash;
	int fd, r;

	if (!n->bytes[2])
		return -ENOENT;
	memcpy(path, n->bytes + 2, n->length - 2);
	slash = strrchr(path, '/');
	if (slash)
		slash[slash == path] = 0;
	fd = raw_open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	r = (int)RAW2(SYS_flock, fd, LOCK_EX);
	if (r < 0)
		raw_close(fd);
	return r < 0 ? r : fd;
}

/* @listen has a name; that of @from is given up if it cannot be had. */
static int unix_named(const struct place *listen, struct place *from, int *ret_listen, int *ret_from)
{
	int lock = lock_directory(&listen->name), r = -EADDRINUSE;
	const struct timespec pause = { 0, SOCKET_TRY_NS };

	if (lock < 0 && lock != -ENOENT)
		return lock;
	socket_path_clear(&listen->name);
	if (is_named(&from->name))
		socket_path_clear(&from->name);
	for (int i = 0; i < SOCKET_TRIES && r == -EADDRINUSE; i++) {
		if (i)
			RAW2(SYS_nanosleep, &pause, NULL);
		r = link_ends(listen, from, ret_listen, ret_from);
		if (lock >= 0 && r == -EADDRINUSE)
			break; /* a path that lives outside the job */
	}
	if (!r)
		socket_path_clear(&listen->name);
	if (lock >= 0)
		raw_close(lock);
	return r;
}

static int unix_pair(int number, const struct socket_record *rec, int ret[2])
{
	struct place own = { AF_UNIX, rec->type, rec->local, 0 }, peer = { AF_UNIX, rec->type, rec->remote, 0 };
	int r = -ENOENT;

	if (rec->type == SOCK_DGRAM) /* each binds its own, where it is bound */
		r = -ENOENT;
	else if (is_named(&peer.name))
		r = unix_named(&peer, &own, &ret[1], &ret[0]);
	else if (is_named(&own.name))
		r = unix_named(&own, &peer, &ret[0], &ret[1]);
	if (!r)
		return 0;
	if (r != -ENOENT)
		log_warn("fd %d: its unix connection comes back without a name (errno %d)", number, -r);
	return (int)RAW4(SYS_socketpair, AF_UNIX, rec->type | SOCK_CLOEXEC, 0, ret);
}

int socket_pair_make(int number, const struct socket_record *r, int ret[2])
{
	int err = r->domain == AF_UNIX ? unix_pair(number, r, ret) : tcp_pair(number, r, ret);

	return err < 0 ? fermata_fail(err, "fd %d: its connection cannot be made again (errno %d)", number, -err) : 0;
}
