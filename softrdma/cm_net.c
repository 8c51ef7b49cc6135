/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm to and from other hosts: owns the TCP ports where listeners are found, and the thread that carries messages between the sockets of one
 * host (cm_port.c) and TCP (cm_carry.c).
 *
 * There is no daemon, so a listener's own process has to be found by those who know its host and its port alone. It listens at one of
 * eight TCP ports that follow from its port space and port, the first that is free (two listeners' may collide); who connects asks
 * those one after the other until one says that it is the right one. Nobody depends on another process for that.
 *
 * A channel's readiness has to mean an event, and a listener has to answer while its program does other things. So the handshake and the
 * carrying are a thread's, and ids see what they see on one host. It is made when a listener or a connection first needs it, ends with
 * the process's last channel, and is a bare clone like that of a context (net_thread.c).
 *
 * Locks: cm_net.h.
 */
#include "softrdma/cm_net.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "softrdma/device.h"

#define BACKLOG 1024
#define SLOT_STRIDE 509u /* so that neighbours of a port do not meet all its slots */

/* ---- where a listener is ---- */

static uint16_t slot_port(uint32_t space, uint32_t port, uint32_t slot)
{
	uint32_t h = (space << 16 | port) * 0x9e3779b1u >> 20;

	return (uint16_t)(NET_CM_PORT + (h + slot * SLOT_STRIDE) % NET_CM_PORTS);
}

static void ipv4(union cm_addr *a, uint32_t address, uint16_t port)
{
	memset(a, 0, sizeof(*a));
	a->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = __builtin_bswap32(address) };
	cm_address_set_port(a, port);
}

socklen_t cm_net_address(uint16_t ps, const union cm_addr *dst, uint32_t slot, union cm_addr *ret)
{
	uint16_t port = slot_port(cm_port_space(ps, dst), cm_address_port(dst), slot);
	union cm_addr now;
	uint32_t address;

	if (dst->family == AF_IB) {
		address = sr_first_gid_host(dst->ib.addr);
		if (!address)
			return 0;
		ipv4(ret, address, port);
	} else {
		*ret = cm_there(dst, &now) ? now : *dst;
		cm_address_set_port(ret, port);
	}
	return (socklen_t)cm_address_len(ret);
}

/* An address of a life before is no interface's any more; who looks for its host finds this one at another. */
static long bind_near(int fd, union cm_addr *a)
{
	long err = RAW3(SYS_bind, fd, a, cm_address_len(a));
	union cm_addr any;

	if (err != -EADDRNOTAVAIL)
		return err;
	memset(&any, 0, sizeof(any));
	any.family = a->family;
	cm_address_set_port(&any, cm_address_port(a));
	return RAW3(SYS_bind, fd, &any, cm_address_len(&any));
}

/* Where its host's own socket is: what an id at @src is bound to. */
static int listener_bind(const struct cm_id *id, uint32_t slot)
{
	union cm_addr a = id->src;
	uint16_t port = slot_port(cm_port_space(id->ps, &id->src), cm_address_port(&id->src), slot);
	int one = 1, only = id->afonly, fd;
	long err;

	if (a.family == AF_IB)
		ipv4(&a, 0, port);
	cm_address_set_port(&a, port);
	fd = sr_socket(a.family, SOCK_STREAM);
	if (fd < 0)
		return fd;
	RAW5(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a.family == AF_INET6)
		RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	err = bind_near(fd, &a);
	if (!err)
		err = RAW2(SYS_listen, fd, BACKLOG);
	if (!err)
		return fd;
	sr_close(fd);
	return (int)err;
}

static int listener_open(const struct cm_id *id)
{
	uint32_t slot;
	int fd = -EADDRINUSE;

	for (slot = 0; fd < 0 && slot < NET_CM_SLOTS; slot++)
		fd = listener_bind(id, slot);
	if (fd < 0)
		log_error("port %u of rdma_cm is not found from other hosts: its %u ports of TCP are taken",
			  cm_address_port(&id->src), NET_CM_SLOTS);
	return fd;
}

static void listener_watch(struct cm_net *net, const struct cm_net_listener *l, int op, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = CM_TAG_LISTENER | (uint64_t)l->number << CM_TAG_NUMBER };

	RAW4(SYS_epoll_ctl, net->wait_fd, op, l->fd, &ev);
}

int cm_net_listener_add(struct cm_id *id, int fd, uint32_t space, uint32_t port)
{
	struct cm_net *net = cm_process->net;
	struct cm_net_listener *l = arena_alloc(&net->arena, sizeof(*l));

	if (!l) {
		sr_close(fd);
		return -ENOMEM;
	}
	l->id = id;
	l->fd = fd;
	l->space = space;
	l->port = port;
	lock_acquire(&net->lock);
	l->number = ++net->last_number;
	list_add_tail(&net->listeners, &l->link);
	lock_release(&net->lock);
	listener_watch(net, l, EPOLL_CTL_ADD, EPOLLIN);
	return 0;
}

void cm_net_listen(struct cm_id *id)
{
	int fd = cm_net_here() ? listener_open(id) : -1;

	if (fd >= 0)
		cm_net_listener_add(id, fd, cm_port_space(id->ps, &id->src), cm_address_port(&id->src));
}

void cm_net_unlisten(struct cm_id *id)
{
	struct cm_net *net = cm_process->net;
	struct epoll_event none = { 0 };
	struct cm_net_listener *l;

	if (!net)
		return;
	lock_acquire(&net->lock);
	list_each_safe(l, &net->listeners, link) {
		if (l->id != id)
			continue;
		list_del(&l->link);
		RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_DEL, l->fd, &none); /* a forked child may have it */
		RAW2(SYS_shutdown, l->fd, SHUT_RDWR);
		sr_close(l->fd);
		arena_free(&net->arena, l);
	}
	lock_release(&net->lock);
}

/* ---- connections ---- */

void cm_net_ring(struct cm_net *net)
{
	uint64_t one = 1;

	raw_write(net->event_fd, &one, sizeof(one));
}

int cm_net_connect(void)
{
	struct cm_net *net = cm_process->net;
	struct cm_net_near *n = arena_alloc(&net->arena, sizeof(*n));
	int pair[2], err;

	if (!n)
		return -ENOMEM;
	err = sr_socketpair(SOCK_SEQPACKET, pair);
	if (err) {
		arena_free(&net->arena, n);
		return err;
	}
	n->fd = pair[1];
	lock_acquire(&net->lock);
	list_add_tail(&net->nears, &n->link);
	lock_release(&net->lock);
	cm_net_ring(net);
	return pair[0];
}

static int near_take(struct cm_net *net)
{
	struct cm_net_near *n = NULL;
	int fd = -1;

	lock_acquire(&net->lock);
	if (!list_empty(&net->nears)) {
		n = container_of(net->nears.next, struct cm_net_near, link);
		fd = n->fd;
		list_del(&n->link);
	}
	lock_release(&net->lock);
	arena_free(&net->arena, n);
	return fd;
}

void cm_net_nears_take(struct cm_net *net)
{
	int fd;

	while ((fd = near_take(net)) >= 0)
		cm_line_near_new(net, fd);
}

static void doors(struct cm_net *net, int shut)
{
	struct cm_net_listener *l;

	net->crowded = shut;
	lock_acquire(&net->lock);
	list_each(l, &net->listeners, link)
		listener_watch(net, l, EPOLL_CTL_MOD, shut ? 0 : EPOLLIN);
	lock_release(&net->lock);
}

void cm_net_doors(struct cm_net *net)
{
	if (net->crowded && cm_line_guest_room(net))
		doors(net, 0);
}

void cm_net_guest_accept(struct cm_net *net, uint32_t number)
{
	struct cm_net_listener *l;
	uint32_t space = 0, port = 0;
	int fd = -1;

	if (!cm_line_guest_room(net)) {
		doors(net, 1);
		return;
	}
	lock_acquire(&net->lock);
	list_each(l, &net->listeners, link) {
		if (l->number != number)
			continue;
		fd = sr_accept(l->fd);
		space = l->space;
		port = l->port;
		break;
	}
	lock_release(&net->lock);
	if (fd >= 0)
		cm_line_guest_new(net, fd, space, port);
}

/* ---- beginning and end ---- */

static void net_free(struct cm_net *net)
{
	struct cm_net_listener *l;

	list_each(l, &net->listeners, link)
		sr_close(l->fd);
	sr_close(net->wait_fd);
	sr_close(net->event_fd);
	arena_done(&net->arena); /* @net itself is of the process's */
}

static int net_start(struct cm_net *net)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = CM_TAG_BELL };

	net->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	net->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (net->wait_fd < 0 || net->event_fd < 0)
		return -errno;
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, net->event_fd, &ev);
	return net_thread_spawn(&net->thread, &net->stack, cm_carry_main, net);
}

int cm_net_here(void)
{
	struct cm_process *p = cm_process;
	struct cm_net *net;
	int err;

	if (p->net_asked)
		return p->net != NULL;
	p->net_asked = 1;
	net = arena_alloc(&p->arena, sizeof(*net));
	if (!net)
		return 0;
	net->wait_fd = net->event_fd = -1;
	list_init(&net->listeners);
	list_init(&net->nears);
	list_init(&net->lines);
	net->arena = (struct arena){ .map = p->arena.map, .unmap = p->arena.unmap };
	memcpy(net->dir, p->dir, sizeof(net->dir));
	err = net_key_read(net->key, &net->key_length, 1);
	if (!err)
		err = net_address_find(&net->host);
	if (err) {
		net_free(net);
		return 0;
	}
	err = net_start(net);
	if (err) {
		log_error("no network for rdma_cm (error %d)", -err);
		net_free(net);
		return 0;
	}
	p->net = net;
	return 1;
}

void cm_net_stop(struct cm_net *net)
{
	if (!net)
		return;
	atomic_store(&net->stopping, 1);
	cm_net_ring(net);
	net_thread_join(&net->thread, net->stack);
	net_free(net);
}
