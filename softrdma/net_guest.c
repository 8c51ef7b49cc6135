/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who connects to us, until it has shown its proof: then its socket becomes that of the connection of its name. A guest
 * may be anybody: it has 5 seconds and a hello's and a proof's bytes. By the context's thread alone, so without a lock.
 *
 *   free -- accepted --> hello comes in -- it fits: ours is sent --> proof comes in -- it fits --> adopted
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

#define GUEST_NS (5 * NET_SECOND)
#define COMPLAIN_NS (100 * NET_MS) /* a line in so much time, */
#define COMPLAINTS 16	   /* after so many */

static void guest_end(struct sr_net *net, struct net_guest *g, const char *why)
{
	uint64_t now = net_now();
	char name[64];

	if (why && now > net->complain_ns) {
		if (now - net->complain_ns > COMPLAINTS * COMPLAIN_NS)
			net->complain_ns = now - COMPLAINTS * COMPLAIN_NS;
		net->complain_ns += COMPLAIN_NS;
		net_name_show(g->address, 0, name, sizeof(name));
		log_error("connection from %s refused: %s", name, why);
	}
	close(g->fd);
	g->fd = -1;
}

static struct net_guest *guest_free(struct sr_net *net)
{
	uint32_t i;

	for (i = 0; i < NET_GUESTS; i++)
		if (net->guest[i].fd < 0)
			return &net->guest[i];
	return NULL;
}

void net_guests_accept(struct sr_net *net)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct net_guest *g = guest_free(net);
	union net_sockaddr sa = { .in6 = { 0 } };
	socklen_t len = sizeof(sa);
	int fd;

	if (!g) {
		net_guests_expire(net, UINT64_MAX); /* the oldest ones go: whoever means it comes again */
		g = guest_free(net);
	}
	fd = g ? accept4(net->listen_fd, &sa.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
	if (fd < 0)
		return;
	memset(g, 0, sizeof(*g));
	g->fd = fd;
	memcpy(g->address, net->gid, 12); /* of IPv4 that is what maps it */
	memcpy(g->address + 12, &sa.in.sin_addr, 4);
	if (sa.sa.sa_family == AF_INET6)
		memcpy(g->address, &sa.in6.sin6_addr, 16);
	g->since = net_now();
	ev.data.u64 = NET_TAG_GUEST + (uint64_t)(g - net->guest);
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, fd, &ev);
	net_timer_set(net, g->since + GUEST_NS);
}

static void greet(struct sr_net *net, struct net_guest *g)
{
	net_hello_make(net, &g->ours);
	net_proof(net, 'S', &g->theirs, &g->ours, g->ours.proof);
	g->greeted = 1;
	g->got = 0;
	RAW6(SYS_sendto, g->fd, &g->ours, sizeof(g->ours), MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
}

/* NULL: it goes on, or has gone by itself. */
static const char *hello_take(struct sr_net *net, struct net_guest *g)
{
	struct net_hello h;
	int err = net_hello_decode(&g->theirs, sizeof(g->theirs), &h);

	if (err == -EPROTONOSUPPORT)
		greet(net, g); /* it shall see our version */
	if (err == -EPROTONOSUPPORT)
		return "it speaks another version of the protocol";
	if (err)
		return "it is no softrdma";
	if (memcmp(h.gid, net->gid, 12) || (h.index == net->ctx->seg->index && !memcmp(h.gid, net->gid, 16)))
		return "it has no name of another host's";
	greet(net, g);
	return NULL;
}

static void proof_take(struct sr_net *net, struct net_guest *g)
{
	struct net_name name = { .index = g->theirs.index };
	uint8_t proof[NET_MAC];
	struct net_conn *c;
	int err = -ENOMEM;

	net_proof(net, 'C', &g->theirs, &g->ours, proof);
	if (!net_proof_equal(proof, g->proof)) {
		guest_end(net, g, "it has another key");
		return;
	}
	memcpy(name.gid, g->theirs.gid, sizeof(name.gid));
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_DEL, g->fd, NULL);
	c = net_conn_get(net, &name);
	if (c) {
		lock_acquire(&c->lock);
		err = net_conn_adopt(c, g->fd);
		lock_release(&c->lock);
	}
	if (err)
		guest_end(net, g, NULL);
	else
		g->fd = -1;
}

void net_guest_read(struct sr_net *net, uint32_t number)
{
	struct net_guest *g = &net->guest[number];
	char *to = g->greeted ? (char *)g->proof : (char *)&g->theirs;
	uint32_t size = g->greeted ? sizeof(g->proof) : sizeof(g->theirs);
	const char *wrong;
	long n;

	if (g->fd < 0)
		return;
	n = RAW6(SYS_recvfrom, g->fd, to + g->got, size - g->got, MSG_DONTWAIT, 0, 0);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		guest_end(net, g, NULL);
		return;
	}
	g->got += (uint32_t)n;
	if (g->got < size)
		return;
	if (g->greeted) {
		proof_take(net, g);
		return;
	}
	wrong = hello_take(net, g);
	if (wrong)
		guest_end(net, g, wrong);
}

/*
 * One that has said nothing at all may have asked whether we are there (net_probe.c), one that has not answered our hello may have given up, as the cable
 * went: of both the end was lost. They are let go without a word.
 */
static void guest_expire(struct sr_net *net, struct net_guest *g)
{
	guest_end(net, g, g->got ? "it says no more" : NULL);
}

void net_guests_expire(struct sr_net *net, uint64_t now)
{
	uint32_t i;

	for (i = 0; i < NET_GUESTS; i++)
		if (net->guest[i].fd >= 0 && now - net->guest[i].since >= GUEST_NS)
			guest_expire(net, &net->guest[i]);
		else if (net->guest[i].fd >= 0)
			net_timer_set(net, net->guest[i].since + GUEST_NS);
}
