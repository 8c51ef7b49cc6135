/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is the host at the other end there? Asked where a connection's own TCP says nothing: that waits longer after each try in vain, and so may try again only when a
 * queue pair's retries are used up. A queue pair's clock waits as long each time, and this goes by that clock: further connections are asked for, with
 * which nothing is said, four in the time of one retry. The other kernel answers for itself. Taken: the host is there, and TCP goes on when it is its time. Refused:
 * there without the process.
 *
 *   cable   |--- out --------------------------| back
 *   TCP     x x  x     x            x          |             x
 *   QP      |      |      |      |      |      |      |      |
 *   probe          x x x xx x x xx x x xx x x xx  there
 *
 * Owns the sockets of the tries under way, those of one retry, under the connection's lock. The context's thread looks at them by its clock.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/net.h"

#define APART_NS (10 * NET_MS) /* of two tries at least, and of the first look */

static void try_end(struct net_probe *p)
{
	struct linger now = { .l_onoff = 1 };

	if (p->fd < 0)
		return;
	RAW5(SYS_setsockopt, p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(p->fd);
	p->fd = -1;
}

void net_probe_end(struct net_conn *c)
{
	uint32_t i;

	for (i = 0; i < NET_PROBES; i++)
		try_end(&c->probe[i]);
	c->probe_every = 0;
}

static void try_look(struct net_conn *c, struct net_probe *p, uint64_t now)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info), err_len = sizeof(int);
	int err = 0;

	if (p->fd < 0)
		return;
	RAW5(SYS_getsockopt, p->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	RAW5(SYS_getsockopt, p->fd, SOL_SOCKET, SO_ERROR, &err, &err_len);
	if (info.tcpi_state == TCP_ESTABLISHED) {
		c->probe_heard = now;
		c->redial |= c->state == NET_DIALLING && c->dial_since < p->since;
	}
	c->refused |= err == ECONNREFUSED;
	if (err || info.tcpi_state == TCP_ESTABLISHED)
		try_end(p);
}

static void try_begin(struct net_conn *c, struct net_probe *p, uint64_t now)
{
	union net_sockaddr to;
	socklen_t len;

	try_end(p);
	p->since = now;
	p->fd = net_dial_socket(c, &to, &len);
	if (p->fd >= 0)
		RAW3(SYS_connect, p->fd, &to, len);
	try_look(c, p, now); /* refused at once, on the own host */
}

void net_probe_tick(struct net_conn *c, uint64_t now)
{
	struct net_probe *last;
	uint64_t due;
	uint32_t i;

	if (!c->probe_every)
		return;
	for (i = 0; i < NET_PROBES; i++)
		try_look(c, &c->probe[i], now);
	if (now >= c->probe_until) {
		net_probe_end(c);
		return;
	}
	last = &c->probe[c->probe_last];
	if (now >= last->since + c->probe_every && (c->state == NET_UP || c->state == NET_DIALLING)) {
		c->probe_last = (c->probe_last + 1) % NET_PROBES;
		last = &c->probe[c->probe_last];
		try_begin(c, last, now);
	}
	/* Most hosts are near: it is looked at once between two tries. */
	due = last->since + (now < last->since + APART_NS ? APART_NS : c->probe_every);
	net_timer_set(c->net, due > now ? due : now + APART_NS);
}

int net_probe(struct net_conn *c, uint64_t now, uint64_t interval_ns)
{
	uint64_t every = interval_ns / NET_PROBES < APART_NS ? APART_NS : interval_ns / NET_PROBES;

	if (!c->probe_every || every < c->probe_every)
		c->probe_every = every;
	if (now + interval_ns + every > c->probe_until)
		c->probe_until = now + interval_ns + every;
	net_probe_tick(c, now);
	return c->state == NET_UP && now < c->probe_heard + interval_ns;
}
