/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns a context's part of the network: whether there is one, its port, its descriptors, and which queue pairs lead there.
 *
 *   context opened     key and address found: the port is bound and listened at; no thread yet
 *   first QP attached  the thread begins
 *   context closed     the thread ends, all sockets are closed (net_end.c: also where the process ends first)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

#define BACKLOG 128
#define LAST_ROUNDS 4 /* of taking in; more may come all the time */

uint32_t sr_net_address(struct sr_host *h)
{
	uint8_t key[NET_KEY_MAX];
	uint32_t length;

	if (net_key_read(key, &length, 0) || net_address_find(h))
		return 0;
	return h->address;
}

static int descriptors_open(struct sr_net *net)
{
	net->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	net->sockets_fd = epoll_create1(EPOLL_CLOEXEC);
	net->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	net->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return net->wait_fd < 0 || net->sockets_fd < 0 || net->event_fd < 0 || net->timer_fd < 0 ? -errno : 0;
}

static void fd_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void descriptors_close(struct sr_net *net)
{
	fd_close(net->wait_fd);
	fd_close(net->sockets_fd);
	fd_close(net->event_fd);
	fd_close(net->timer_fd);
	fd_close(net->listen_fd);
	fd_close(net->group_fd);
}

struct sr_net *net_make(struct sr_context *ctx, const uint8_t *key, uint32_t length, const uint8_t gid[16], uint32_t interface)
{
	struct sr_net *net = arena_alloc(&ctx->arena, sizeof(*net));
	uint32_t i;

	if (!net)
		return NULL;
	net->group_fd = net->listen_fd = net->wait_fd = net->sockets_fd = net->event_fd = net->timer_fd = -1;
	if (descriptors_open(net)) {
		log_error("no descriptors for the network");
		descriptors_close(net);
		arena_free(&ctx->arena, net);
		return NULL;
	}
	net->ctx = ctx;
	net->key_length = length;
	memcpy(net->key, key, length);
	memcpy(net->gid, gid, sizeof(net->gid));
	net->interface = interface;
	list_init(&net->conns);
	list_init(&net->free_qps);
	for (i = 0; i < NET_GUESTS; i++)
		net->guest[i].fd = -1;
	return net;
}

void net_discard(struct sr_net *net)
{
	descriptors_close(net);
	arena_free(&net->ctx->arena, net);
}

void sr_net_open(struct sr_context *ctx)
{
	uint8_t key[NET_KEY_MAX], gid[16];
	struct sr_host host;
	uint32_t length;

	if (net_key_read(key, &length, 1) || net_address_find(&host))
		return;
	net_name_fill(&host, host.address, gid);
	ctx->net = net_make(ctx, key, length, gid, host.interface);
}

int net_claim(struct sr_net *net, uint32_t index)
{
	union net_sockaddr sa;
	socklen_t len;
	int fd, one = 1;

	fd_close(net->listen_fd);
	len = net_sockaddr_fill(net->gid, NET_PORT + index, &sa);
	net->listen_fd = fd = socket(sa.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Connections of its last owner may linger; a listener there refuses us all the same. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return bind(fd, &sa.sa, len) || listen(fd, BACKLOG) ? -errno : 0;
}

int sr_net_claim(struct sr_context *ctx, uint32_t index)
{
	int err = ctx->net ? net_claim(ctx->net, index) : 0;

	if (!err || err == -EADDRINUSE)
		return err;
	log_error("no network: port %u of this host's address cannot be had (error %d)", NET_PORT + index, -err);
	sr_net_close(ctx);
	return 0;
}

void sr_net_stop(struct sr_context *ctx)
{
	net_thread_stop(ctx->net);
}

void sr_net_close(struct sr_context *ctx)
{
	uint64_t limit = net_now() + NET_SECOND;
	struct sr_net *net = ctx->net;
	struct net_conn *c;
	uint32_t i;

	if (!net)
		return;
	list_each_safe(c, &net->conns, link) {
		net_conn_close(c, limit);
		arena_free(&ctx->arena, c->spill);
		sr_memory.unmap(c->in, NET_IN);
		arena_free(&ctx->arena, c);
	}
	for (i = 0; i < NET_GUESTS; i++)
		fd_close(net->guest[i].fd);
	descriptors_close(net);
	net_buffers_close(net);
	arena_free(&ctx->arena, net);
	ctx->net = NULL;
}

/* ---- queue pairs ---- */

static int thread_need(struct sr_net *net)
{
	int err = 0;

	lock_acquire(&net->ctx->lock);
	if (!net->started) {
		net_buffers_init(net); /* the segment is there by now */
		net->cookie = sr_random(net->ctx);
		err = net_thread_start(net);
		net->started = !err;
	}
	lock_release(&net->ctx->lock);
	if (err)
		log_error("no thread for the network: error %d", -err);
	return err;
}

static void polled_add(struct sr_qp *qp, int n)
{
	if (qp->net_polled == n)
		return;
	qp->net_polled = n;
	if (qp->qp.send_cq)
		atomic_fetch_add(&sr_cq(qp->qp.send_cq)->net, n ? 1 : -1);
	if (qp->qp.recv_cq)
		atomic_fetch_add(&sr_cq(qp->qp.recv_cq)->net, n ? 1 : -1);
	if (qp->qp.srq && sr_srq(qp->qp.srq)->cq)
		atomic_fetch_add(&sr_srq(qp->qp.srq)->cq->net, n ? 1 : -1);
}

static struct net_qp *qp_take(struct sr_net *net)
{
	struct net_qp *n = NULL;

	lock_acquire(&net->lock);
	if (!list_empty(&net->free_qps)) {
		n = container_of(net->free_qps.next, struct net_qp, link);
		list_del(&n->link);
		memset(n, 0, sizeof(*n));
	}
	lock_release(&net->lock);
	return n ? n : arena_alloc(&net->ctx->arena, sizeof(*n));
}

static void qp_fill(struct sr_net *net, struct net_qp *n, struct sr_qp *qp, struct net_conn *c)
{
	uint32_t tail = atomic_load(&qp->shm->sq_tail), i;

	n->qp = qp;
	n->qpn = qp->shm->qpn;
	n->dest_qpn = qp->attr.dest_qp_num;
	n->unreliable = qp->shm->type == IBV_QPT_UC;
	lock_acquire(&net->ctx->lock);
	n->life = (uint32_t)(sr_random(net->ctx) >> 16);
	lock_release(&net->ctx->lock);
	n->base = n->next = n->sent = n->acked = n->read_done = tail;
	for (i = 0; i < NET_READS; i++)
		n->result_seq[i] = ~0u;
	list_init(&n->link);
	list_init(&n->send_link);
	list_init(&n->busy_link);
	list_init(&n->due_link);
	atomic_store(&n->conn, c);
}

void sr_net_attach(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_net *net = ctx->net;
	struct net_name name = { .index = qp->attr.dest_qp_num >> SR_QP_BITS };
	uint16_t site = qp->apart;
	uint32_t host;
	struct net_conn *c;
	struct net_qp *n;

	if (qp->net || thread_need(net))
		return;
	if (qp->shm->type == IBV_QPT_UD) {
		polled_add(qp, 1);
		return;
	}
	host = qp->apart ? 0 : sr_host_find(ctx, &qp->attr.ah_attr, &site);
	if (!host && !qp->apart)
		return;
	net_host_name(net, host, name.gid);
	c = net_conn_get(net, &name);
	n = c ? qp_take(net) : NULL;
	if (!n)
		return;
	qp_fill(net, n, qp, c);
	n->dest_site = site;
	lock_acquire(&c->lock);
	list_add_tail(&c->qps, &n->link);
	atomic_store(&net->qp[n->qpn % SR_MAX_QP], n);
	qp->net = n;
	net_due_add(c, n, NET_DUE_READY);
	net_pump(c);
	lock_release(&c->lock);
	polled_add(qp, 1);
}

void sr_net_detach(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_net *net = ctx->net;
	struct net_qp *n = qp->net;
	struct net_conn *c;

	polled_add(qp, 0);
	qp->net_to = NULL;
	if (!n)
		return;
	c = n->conn;
	lock_acquire(&c->lock);
	net_pump(c); /* what it owes */
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	net_stop(c, n);
	rlock_release(&qp->shm->sq_lock);
	net_spill(c, n);
	if (c->in_qp == n)
		c->discard = 1;
	net_respond_reset(n);
	list_del(&n->link);
	atomic_store(&net->qp[n->qpn % SR_MAX_QP], NULL);
	n->qp = NULL;
	atomic_store(&n->conn, NULL);
	qp->net = NULL;
	lock_release(&c->lock);
	lock_acquire(&net->lock);
	list_add_tail(&net->free_qps, &n->link);
	lock_release(&net->lock);
}

void sr_net_take_in(struct sr_qp *qp)
{
	struct net_conn *c = qp->net->conn;
	int i;

	lock_acquire(&c->lock);
	for (i = 0; i < LAST_ROUNDS && c->state == NET_UP && net_receive(c); i++)
		;
	lock_release(&c->lock);
}

void sr_net_run_locked(struct sr_context *ctx, struct sr_qp *qp)
{
	struct net_qp *n = qp->net;
	struct net_conn *c = n->conn;

	if (!lock_try(&c->lock)) {
		rlock_release(&qp->shm->sq_lock);
		lock_acquire(&c->lock);
		sr_sq_lock(ctx, &ctx->self, qp->shm);
	}
	net_request_run(c, n);
	rlock_release(&qp->shm->sq_lock);
	net_pump(c);
	lock_release(&c->lock);
}

uint32_t sr_net_refusals(struct sr_qp *qp)
{
	struct net_qp *n = qp->net;
	struct net_conn *c = n ? n->conn : NULL;
	uint32_t count;

	if (!c)
		return 0;
	lock_acquire(&c->lock);
	count = n->refusals;
	lock_release(&c->lock);
	return count;
}

void sr_net_ready(struct sr_context *ctx, struct sr_qp *qp)
{
	struct net_qp *n = qp->net;
	struct net_conn *c = n->conn;

	lock_acquire(&c->lock);
	net_due_add(c, n, NET_DUE_READY);
	net_pump(c);
	lock_release(&c->lock);
}
