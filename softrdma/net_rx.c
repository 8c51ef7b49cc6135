/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes in on a connection. Frames, and payloads up to NET_BUFFERED bytes with them, are read into a buffer; the rest of a longer
 * payload is read straight to where it belongs, which is looked up and checked again for each read, together with what follows
 * it.
 *
 * A frame that breaks a bound ends the connection. One that means nothing to us (a queue pair that is gone, a number that
 * is over) is read and dropped.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/net.h"

#define READS 16	/* in a row */
#define PAUSE_LEAST_NS 10000u
#define PAUSE_MOST_NS 200000u
#define FOLLOWS 4096u /* bytes that are read with the end of a long message; behind a part of one the next part's frame is */

static void frame_small(struct net_conn *c, char *payload)
{
	const struct net_frame *f = &c->f;
	struct net_qp *n;
	struct pieces p;

	switch (f->type) {
	case NET_REQUEST:
		n = net_request_accept(c, f);
		if (n)
			net_request_take(c, n, f, payload);
		break;
	case NET_ACK:
		net_acked(c, f);
		break;
	case NET_NAK:
		net_refused(c, f);
		break;
	case NET_DATA:
		n = net_data_accept(c, f);
		if (!n || net_data_pieces(c, n, f, 0, f->length, &p))
			break;
		if (net_copy_in(c, &p, payload))
			net_data_fault(c, n, f, IBV_WC_LOC_PROT_ERR);
		else
			net_data_done(c, n, f);
		break;
	case NET_READY:
		net_resumed(c, f);
		break;
	case NET_DATAGRAM:
		net_datagram_take(c, f, payload);
		break;
	default:
		net_ping_take(c, f);
		break;
	}
}

/* ---- long payloads ---- */

static void large_begin(struct net_conn *c)
{
	struct net_qp *n = NULL;

	if (c->f.type == NET_REQUEST)
		n = net_request_accept(c, &c->f);
	else if (c->f.type == NET_DATA)
		n = net_data_accept(c, &c->f);
	c->discard = !n;
	c->in_qp = n;
}

static void large_end(struct net_conn *c)
{
	if (c->discard)
		return;
	if (c->f.type == NET_REQUEST)
		net_fragment_done(c, c->in_qp, &c->f);
	else
		net_data_done(c, c->in_qp, &c->f);
}

/* Its memory was registered, and is unmapped. */
static void large_fault(struct net_conn *c)
{
	if (c->f.type == NET_REQUEST)
		net_respond_fault(c, c->in_qp, &c->f);
	else
		net_data_fault(c, c->in_qp, &c->f, IBV_WC_LOC_PROT_ERR);
	c->discard = 1;
}

/* Where the rest goes. 0: locked, if it is a request's; -1: nowhere any more. */
static int large_lock(struct net_conn *c, struct pieces *p)
{
	uint32_t offset = c->f.length - c->left;
	int err = -1;

	if (!c->discard && c->f.type == NET_REQUEST)
		err = net_place_lock(c, c->in_qp, &c->f, offset, c->left, p);
	else if (!c->discard)
		err = net_data_pieces(c, c->in_qp, &c->f, offset, c->left, p);
	if (err)
		c->discard = 1;
	return err;
}

static void large_unlock(struct net_conn *c)
{
	if (c->f.type == NET_REQUEST)
		net_place_unlock(c->in_qp);
}

/* What of it the buffer has. */
static void large_take(struct net_conn *c)
{
	uint32_t have = c->in_end - c->in_at;
	char *from = c->in + c->in_at;
	struct pieces all, p;
	int err;

	if (have > c->left)
		have = c->left;
	c->in_at += have;
	if (!have)
		return;
	err = large_lock(c, &all);
	c->left -= have;
	if (err)
		return;
	net_cut(&all, 0, have, &p);
	err = net_copy_in(c, &p, from);
	large_unlock(c);
	if (err)
		large_fault(c);
}

/* ---- the buffer ---- */

/* 1: a frame was taken; 0: more has to come; or -EPROTO. */
static int frame_next(struct net_conn *c)
{
	uint32_t have = c->in_end - c->in_at;

	if (!c->in_frame) {
		if (have < sizeof(c->f))
			return 0;
		if (net_frame_decode(c->in + c->in_at, have, &c->f))
			return -EPROTO;
		c->in_at += sizeof(c->f);
		have -= sizeof(c->f);
		c->in_frame = 1;
		c->left = c->f.length;
		c->large = c->left > NET_BUFFERED;
		if (c->large)
			large_begin(c);
	}
	if (c->large) {
		large_take(c);
		if (c->left)
			return 0;
		c->in_frame = 0;
		large_end(c);
		return 1;
	}
	if (have < c->left)
		return 0;
	c->in_at += c->left;
	c->in_frame = 0;
	frame_small(c, c->in + c->in_at - c->left);
	return 1;
}

static long read_dropped(struct net_conn *c)
{
	/* TCP's own: the bytes are gone without being copied. */
	long n = RAW6(SYS_recvfrom, c->fd, NULL, c->left, MSG_DONTWAIT | MSG_TRUNC, 0, 0);

	if (n > 0)
		c->left -= (uint32_t)n;
	return n;
}

/*
 * What is asked for too often comes in crumbs, each with the cost of a call, of a wake-up of TCP's and of a packet that says so. So when a long payload is
 * not all there, who polls waits about as long as the rest should take, by how fast it has come: a host that is quicker loses the least pause.
 */
static void pause_begin(struct net_conn *c)
{
	uint64_t now = net_now(), ns = (c->left >> 10) * c->ns_a_kib;

	ns = ns < PAUSE_LEAST_NS ? PAUSE_LEAST_NS : ns > PAUSE_MOST_NS ? PAUSE_MOST_NS : ns;
	if (!c->drained)
		c->drained = now;
	c->pause_until = now + ns;
}

static void pause_end(struct net_conn *c, uint64_t bytes)
{
	if (c->drained && bytes >= 1024)
		c->ns_a_kib = (c->ns_a_kib + (net_now() - c->drained) / (bytes >> 10)) / 2;
	c->drained = c->pause_until = 0;
}

static long read_long(struct net_conn *c)
{
	struct iovec v[SR_MAX_SGE + 3];
	struct msghdr m = { .msg_iov = v };
	struct pieces p;
	long n;

	if (c->discard || large_lock(c, &p))
		return read_dropped(c);
	memcpy(v, p.v, p.n * sizeof(*v));
	v[p.n] = (struct iovec){ c->in, c->f.flags & NET_LAST ? FOLLOWS : sizeof(c->f) };
	m.msg_iovlen = p.n + 1;
	n = RAW3(SYS_recvmsg, c->fd, &m, MSG_DONTWAIT);
	large_unlock(c);
	if (n == -EAGAIN)
		pause_begin(c);
	if (n == -EFAULT) {
		large_fault(c);
		return read_dropped(c);
	}
	if (n <= 0)
		return n;
	pause_end(c, (uint64_t)n);
	c->in_at = 0;
	c->in_end = n > c->left ? (uint32_t)n - c->left : 0;
	c->left -= (uint32_t)n - c->in_end;
	return n;
}

static long read_more(struct net_conn *c)
{
	uint32_t have = c->in_end - c->in_at;
	long n;

	if (c->in_frame && c->large) /* the buffer is empty */
		return read_long(c);
	if (!have) {
		c->in_at = c->in_end = 0;
	} else if (NET_IN - c->in_end < NET_BUFFERED + sizeof(c->f)) {
		memmove(c->in, c->in + c->in_at, have);
		c->in_at = 0;
		c->in_end = have;
	}
	n = RAW6(SYS_recvfrom, c->fd, c->in + c->in_end, NET_IN - c->in_end, MSG_DONTWAIT, 0, 0);
	if (n > 0)
		c->in_end += (uint32_t)n;
	return n;
}

int net_receive(struct net_conn *c)
{
	int i, r, got = 0, last = 0;
	long n;

	for (i = 0; i < READS && c->state == NET_UP && !last; i++) {
		n = read_more(c);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			net_conn_break(c, NULL);
			return 1;
		}
		got = 1;
		if (unlikely(!c->heard))
			net_conn_heard(c);
		last = c->in_end != NET_IN && !(c->in_frame && c->large); /* it was all there is */
		do
			r = frame_next(c);
		while (r > 0);
		if (r < 0) {
			net_conn_break(c, "what it says is not understood");
			return 1;
		}
	}
	return got;
}
