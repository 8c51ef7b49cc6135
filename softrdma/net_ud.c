/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams between hosts. One goes out by the hand of who posts it, whole or not at all: it is copied into the
 * connection's buffer. Where that is full the poster waits for room, as a program does that writes to a socket, for at
 * most a second; then, as where nobody can be reached, the datagram is lost.
 *
 * The queue's sq_lock is held by the poster, so nothing here may be called under a connection's lock that takes the sq_lock of such
 * a queue: what a datagram that came in breaks is flushed when its owner looks next.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/net.h"

#define LOST_NS NET_SECOND
#define LOOK_MS 10

static struct net_conn *conn_to(struct sr_net *net, struct sr_qp *qp, uint32_t host, uint32_t index)
{
	struct net_name name = { .index = index };
	struct net_conn *c = qp->net_to;

	net_host_name(net, host, name.gid);
	if (likely(c && c->name.index == index && !memcmp(c->name.gid, name.gid, sizeof(name.gid))))
		return c;
	return qp->net_to = net_conn_get(net, &name);
}

/* What there is to wait for. */
struct wait {
	int fd; /* -1: the connection */
	int refused;
};

/* 1: it is on its way; 0: there is no room now; -EFAULT: what it consists of is not there. */
static int try_put(struct net_conn *c, const struct net_frame *f, struct pieces *p, struct wait *ret_wait)
{
	char *to = NULL;
	int err = 0;

	lock_acquire(&c->lock);
	if (c->state == NET_DOWN)
		net_conn_dial(c);
	else
		net_pump(c);
	if (c->state == NET_UP && c->heard)
		to = net_frame_put(c, f, f->length);
	if (to)
		err = net_copy_out(c, to, p);
	if (err)
		c->out_end -= (uint32_t)sizeof(*f) + f->length;
	else if (to)
		net_pump(c);
	*ret_wait = (struct wait){ .fd = c->state == NET_UP && c->heard ? c->fd : -1, .refused = c->refused };
	lock_release(&c->lock);
	return err ? err : to != NULL;
}

/* Whoever has that number in the meantime: it is a little. */
static void wait_a_little(const struct wait *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLOUT };
	struct timespec ts = { .tv_nsec = w->fd >= 0 ? LOOK_MS * 1000000 : 200000 };

	if (w->fd >= 0)
		RAW5(SYS_ppoll, &p, 1, &ts, NULL, 0);
	else
		RAW5(SYS_ppoll, NULL, 0, &ts, NULL, 0);
}

int sr_net_datagram(struct sr_run *r, struct op *o, const struct sr_sender *from, uint32_t host)
{
	struct sr_net *net = r->ctx->net;
	struct net_conn *c = conn_to(net, r->ctx->qps.object[r->q->number], host, o->w->target >> SR_QP_BITS);
	struct net_frame f = { .type = NET_DATAGRAM, .opcode = (uint8_t)o->w->opcode, .to = o->w->target & 0xffffff,
			       .from = from->qpn, .rkey = o->w->rkey, .imm = o->w->imm,
			       .length = (uint32_t)o->w->length + SR_GRH,
			       .target = (uint32_t)from->slid | (uint32_t)from->sl << 16, .site = from->site,
			       .pkey = from->pkey };
	uint64_t end = 0;
	struct wait w;
	int done;

	f.flags = (uint8_t)((o->w->flags & IBV_SEND_SOLICITED ? NET_SOLICITED : 0) | (from->routed ? NET_ROUTED : 0) |
			    (o->w->opcode == IBV_WR_SEND_WITH_IMM ? NET_IMMEDIATE : 0));
	while (c && !(done = try_put(c, &f, &o->local, &w))) {
		end = end ? end : net_now() + LOST_NS;
		if (net_now() > end || w.refused)
			break;
		wait_a_little(&w);
	}
	return c && done < 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
}

void net_datagram_take(struct net_conn *c, const struct net_frame *f, char *payload)
{
	struct sr_context *ctx = c->net->ctx;
	const struct sr_sender from = { .qpn = f->from, .slid = (uint16_t)f->target, .sl = (uint8_t)(f->target >> 16 & 15),
					.site = f->site, .pkey = f->pkey, .routed = !!(f->flags & NET_ROUTED) };
	struct sr_run r = { .ctx = ctx, .src = &ctx->self, .dst = &ctx->self };
	struct sr_wqe w = { .opcode = f->flags & NET_IMMEDIATE ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm = f->imm,
			    .length = f->length - SR_GRH, .rkey = f->rkey,
			    .flags = f->flags & NET_SOLICITED ? IBV_SEND_SOLICITED : 0 };
	struct op o = { .w = &w, .from = &c->net->arrived };

	o.local.v[0] = net_arrived(c, payload, f->length);
	o.local.n = 1;
	sr_ud_deliver(&r, &o, &from, &ctx->self, f->to);
}
