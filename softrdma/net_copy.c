/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves short payloads between a connection's buffers and the program's memory. That is registered, but its owner may have
 * unmapped it since: so the kernel moves, who says so where a program's own instruction would end the process. (Long payloads go by the
 * socket's own call, which says it too.)
 *
 *   in    the buffers lie in a file in memory, which is mapped, and what shall go from there is read from the file: of the ways to have the kernel
 *         copy some bytes that is the cheapest, half of process_vm_*
 *   out   process_vm_writev, once for the requests of a turn
 *
 * What memory is known to be there (inline data, ours) is copied at once; and all of it where the kernel has neither way for
 * a process on itself, as a filter of system calls may have it.
 *
 * net->arrived and net->here stand for the buffers in moves: peers whose memory is known to be there. Of the first the addresses are
 * places in the file. Under the connection's lock, and the lock that the memory was found under.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/net.h"
#include "softrdma/vm.h"

void net_buffers_init(struct sr_net *net)
{
	uint64_t from = 1, to = 0;
	struct iovec here = { &from, sizeof(from) }, there = { &to, sizeof(to) };

	net->here = (struct sr_peer){ .seg = net->ctx->seg, .token = net->ctx->self.token, .pid = raw_getpid(), .mem_fd = -1,
				      .refs = 1, .known = 1 };
	list_init(&net->here.link);
	net->here.local = sr_vm_copy(net->here.pid, 1, &here, 1, &there, 1) != sizeof(to);
	net->arrived = net->here;
	list_init(&net->arrived.link);
	net->arrived.mem_fd = memfd_create("softrdma-net", MFD_CLOEXEC);
	if (net->arrived.mem_fd < 0)
		return;
	net->arrived.local = 0;
	net->arrived.no_vm = 1;
}

void net_buffers_close(struct sr_net *net)
{
	if (net->started && net->arrived.mem_fd >= 0)
		close(net->arrived.mem_fd);
}

/* In the file, whose pages are made when they are used; net->lock held. */
int net_buffer_make(struct sr_net *net, struct net_conn *c)
{
	int fd = net->arrived.mem_fd;

	c->in_base = net->buffers * (uint64_t)NET_IN;
	if (fd >= 0 && ftruncate(fd, (off_t)(c->in_base + NET_IN)))
		return -errno;
	c->in = sr_memory.map(NULL, NET_IN, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd,
		     fd >= 0 ? (off_t)c->in_base : 0);
	if (c->in == MAP_FAILED)
		return -errno;
	if (fd < 0)
		c->in_base = (uintptr_t)c->in;
	net->buffers++;
	return 0;
}

struct iovec net_arrived(const struct net_conn *c, const char *payload, uint32_t length)
{
	return (struct iovec){ (void *)(uintptr_t)(c->in_base + (uint64_t)(payload - c->in)), length };
}

static uint64_t length_of(const struct pieces *p)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < p->n; i++)
		n += p->v[i].iov_len;
	return n;
}

int net_copy_in(struct net_conn *c, struct pieces *to, const char *from)
{
	struct sr_context *ctx = c->net->ctx;
	struct iovec v = net_arrived(c, from, (uint32_t)length_of(to));

	return sr_copy(ctx, &ctx->self, to->v, &c->net->arrived, &v, v.iov_len) ? -EFAULT : 0;
}

int net_copy_out(struct net_conn *c, char *to, struct pieces *from)
{
	struct sr_context *ctx = c->net->ctx;
	struct iovec v = { to, length_of(from) };

	return sr_copy(ctx, &c->net->here, &v, &ctx->self, from->v, v.iov_len) ? -EFAULT : 0;
}

void net_copy_known(char *to, const struct pieces *from)
{
	uint32_t i;

	for (i = 0; i < from->n; to += from->v[i++].iov_len)
		memcpy(to, from->v[i].iov_base, from->v[i].iov_len);
}

/* ---- the requests of a turn ---- */

int net_gather_has_room(const struct net_gather *g, uint32_t pieces)
{
	return g->n < NET_TURN && g->nv + pieces <= NET_GATHER;
}

void net_gather_add(struct net_gather *g, uint32_t number, char *to, const struct pieces *from)
{
	memcpy(&g->from[g->nv], from->v, from->n * sizeof(*from->v));
	g->nv += from->n;
	g->number[g->n] = number;
	g->to[g->n++] = (struct iovec){ to, length_of(from) };
}

/* 1: all are there. 0: *@ret_number is the first one of which something is not, *@ret_to where it should have gone. */
int net_gather_run(struct net_conn *c, uint32_t *ret_number, char **ret_to)
{
	struct sr_context *ctx = c->net->ctx;
	struct net_gather *g = &c->gather;
	uint64_t all = 0;
	uint32_t i, n = g->n;
	int err;

	for (i = 0; i < n; i++)
		all += g->to[i].iov_len;
	g->n = g->nv = 0;
	if (!all)
		return 1;
	memcpy(g->begin, g->to, n * sizeof(*g->to)); /* a copy uses them up */
	err = sr_copy(ctx, &c->net->here, g->to, &ctx->self, g->from, all);
	for (i = 0; err && i < n; i++) {
		if (!g->to[i].iov_len)
			continue;
		*ret_number = g->number[i];
		*ret_to = g->begin[i].iov_base;
		return 0;
	}
	return 1;
}
