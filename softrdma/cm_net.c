/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm to and from other hosts: owns the thread that carries messages between the sockets of one host (cm_port.c) and TCP, and the
 * TCP ports where listeners are found.
 *
 * There is no daemon, so a listener's own process has to be found by those who know its host and its port alone. It listens at one of
 * eight TCP ports that follow from its port space and port, the first that is free (two listeners' may collide); who connects asks
 * those one after the other until one says that it is the right one. Nobody depends on another process for that.
 *
 * A channel's readiness has to mean an event, and a listener has to answer while its program does other things. So the handshake and the
 * carrying are a thread's, and ids see what they see on one host. It is made when a listener or a connection first needs it, ends with
 * the process's last channel, and is a bare clone like that of a context (net_thread.c). Its sockets are made and closed by system calls: a
 * library that stands in for the libc's names (librspreload) would take them for the program's.
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

#define BACKLOG 128
#define SLOT_STRIDE 509u /* so that neighbours of a port do not meet all its slots */

/* What an event is about: a line (its address, and the lowest bit for its near end), a listener's number, or the bell. */
#define TAG_BELL 2ull
#define TAG_LISTENER 4ull
#define TAG_BITS 7ull

static void fd_close(int fd)
{
	if (fd >= 0)
		raw_close(fd);
}

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
	uint32_t address;

	if (dst->family == AF_IB) {
		address = sr_first_gid_host(dst->ib.addr);
		if (!address)
			return 0;
		ipv4(ret, address, port);
	} else {
		*ret = *dst;
		cm_address_set_port(ret, port);
	}
	return (socklen_t)cm_address_len(ret);
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
	err = RAW3(SYS_bind, fd, &a, cm_address_len(&a));
	if (!err)
		err = RAW2(SYS_listen, fd, BACKLOG);
	if (!err)
		return fd;
	raw_close(fd);
	return (int)err;
}

static int listener_open(const struct cm_id *id)
{
	uint32_t slot;
	int fd = -1;

	for (slot = 0; fd < 0 && slot < NET_CM_SLOTS; slot++)
		fd = listener_bind(id, slot);
	if (fd < 0)
		log_error("port %u of rdma_cm is not found from other hosts: its %u ports of TCP are taken",
			  cm_address_port(&id->src), NET_CM_SLOTS);
	return fd;
}

void cm_net_listen(struct cm_id *id)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct cm_net_listener *l;
	struct cm_net *net;
	int fd;

	if (!cm_net_here())
		return;
	net = cm_process->net;
	fd = listener_open(id);
	l = fd < 0 ? NULL : arena_alloc(&net->arena, sizeof(*l));
	if (!l) {
		fd_close(fd);
		return;
	}
	l->id = id;
	l->fd = fd;
	l->space = cm_port_space(id->ps, &id->src);
	l->port = cm_address_port(&id->src);
	lock_acquire(&net->lock);
	l->number = ++net->last_number;
	list_add_tail(&net->listeners, &l->link);
	lock_release(&net->lock);
	ev.data.u64 = TAG_LISTENER | (uint64_t)l->number << 3;
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, fd, &ev);
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
		raw_close(l->fd);
		arena_free(&net->arena, l);
	}
	lock_release(&net->lock);
}

/* ---- connections ---- */

static void ring(struct cm_net *net)
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
	err = (int)RAW4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
	if (err) {
		arena_free(&net->arena, n);
		return err;
	}
	n->fd = pair[1];
	lock_acquire(&net->lock);
	list_add_tail(&net->nears, &n->link);
	lock_release(&net->lock);
	ring(net);
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

static void nears_take(struct cm_net *net)
{
	int fd;

	while ((fd = near_take(net)) >= 0)
		cm_line_near_new(net, fd);
}

static void guests_accept(struct cm_net *net, uint32_t number)
{
	struct cm_net_listener *l;
	uint32_t space = 0, port = 0;
	int fd = -1;

	lock_acquire(&net->lock);
	list_each(l, &net->listeners, link) {
		if (l->number != number)
			continue;
		fd = (int)RAW4(SYS_accept4, l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		space = l->space;
		port = l->port;
		break;
	}
	lock_release(&net->lock);
	if (fd >= 0)
		cm_line_guest_new(net, fd, space, port);
}

/* ---- the thread ---- */

static void serve(struct cm_net *net, uint64_t tag)
{
	uint64_t rung;

	if (tag == TAG_BELL) {
		raw_read(net->event_fd, &rung, sizeof(rung));
		nears_take(net);
	} else if (tag & TAG_LISTENER) {
		guests_accept(net, (uint32_t)(tag >> 3));
	} else {
		cm_line_event((struct cm_line *)(uintptr_t)(tag & ~TAG_BITS), (int)(tag & 1));
	}
}

static int wait_ms(const struct cm_net *net)
{
	uint64_t now = net_now();

	if (!net->due)
		return -1;
	return net->due <= now ? 0 : (int)((net->due - now) / NET_MS + 1);
}

static void thread_main(void *arg)
{
	struct cm_net *net = arg;
	struct epoll_event ev[16];
	long i, n;

	RAW2(SYS_prctl, 15 /* PR_SET_NAME */, "softrdma-cm");
	while (!atomic_load(&net->stopping)) {
		n = RAW4(SYS_epoll_wait, net->wait_fd, ev, 16, wait_ms(net));
		for (i = 0; i < n; i++)
			serve(net, ev[i].data.u64);
		if (net->due && net->due <= net_now())
			cm_line_clocks(net);
		cm_lines_reap(net);
	}
	nears_take(net);
	cm_lines_end(net);
	cm_lines_reap(net);
}

static void net_free(struct cm_net *net)
{
	struct cm_net_listener *l;

	list_each(l, &net->listeners, link)
		raw_close(l->fd);
	fd_close(net->wait_fd);
	fd_close(net->event_fd);
	arena_done(&net->arena); /* @net itself is of the process's */
}

static int net_start(struct cm_net *net)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = TAG_BELL };

	net->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	net->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (net->wait_fd < 0 || net->event_fd < 0)
		return -errno;
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, net->event_fd, &ev);
	return net_thread_spawn(&net->thread, &net->stack, thread_main, net);
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
	err = sr_is_preloaded() ? net_key_read(net->key, &net->key_length, 1) : -ENOENT;
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
	ring(net);
	net_thread_join(&net->thread, net->stack);
	net_free(net);
}
