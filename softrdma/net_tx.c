/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes out of a connection. Frames and short payloads are put into a buffer, as many as there are and fit; then comes at
 * most one long payload, which stays where it lies in the program's memory, and is looked up again for each send: its
 * keys are checked at the moment the kernel reads it.
 *
 * Order: what the other end waits for (ACK, NAK, READY, answers), then requests, queue pairs in turns. Everything under the
 * connection's lock; a queue pair's sq_lock or rx_lock is taken for the moment.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/net.h"

void net_cut(const struct pieces *all, uint32_t offset, uint32_t length, struct pieces *ret)
{
	uint32_t i;

	ret->n = 0;
	for (i = 0; i < all->n && length; i++) {
		size_t part = all->v[i].iov_len;

		if (offset >= part) {
			offset -= (uint32_t)part;
			continue;
		}
		part -= offset;
		if (part > length)
			part = length;
		ret->v[ret->n++] = (struct iovec){ (char *)all->v[i].iov_base + offset, part };
		length -= (uint32_t)part;
		offset = 0;
	}
}

char *net_frame_put(struct net_conn *c, const struct net_frame *f, uint32_t payload)
{
	char *at = c->out + c->out_end;

	if (c->source != NET_FROM_NOTHING || c->mute || NET_OUT - c->out_end < sizeof(*f) + payload)
		return NULL;
	memcpy(at, f, sizeof(*f));
	c->out_end += (uint32_t)sizeof(*f) + payload;
	return at + sizeof(*f);
}

/* ---- what is due ---- */

void net_due_add(struct net_conn *c, struct net_qp *n, uint32_t what)
{
	n->due |= what;
	if (list_empty(&n->due_link))
		list_add_tail(&c->due, &n->due_link);
}

static int stage_word(struct net_conn *c, struct net_qp *n, uint32_t what)
{
	struct net_frame f = { .to = n->dest_qpn, .from = n->qpn, .life = n->rx_life };

	if (!(n->due & what))
		return 0;
	f.type = what == NET_DUE_ACK ? NET_ACK : what == NET_DUE_NAK ? NET_NAK : NET_READY;
	f.seq = what == NET_DUE_NAK ? n->expected : n->expected - 1;
	if (what == NET_DUE_NAK) {
		f.status = (uint8_t)n->nak_status;
		f.imm = n->nak_timer;
	}
	if (!net_frame_put(c, &f, 0))
		return -EAGAIN;
	n->due &= ~what;
	return 0;
}

static void answer_advance(struct net_qp *n, uint32_t length)
{
	struct net_answer *a = &n->answer[n->answer_head % NET_READS];

	a->offset += length;
	if (a->offset == a->length)
		n->answer_head++;
}

/* A short fragment of the oldest answer. -1: it cannot be had. */
static int answer_copy(struct net_conn *c, struct net_qp *n, uint32_t length, char *to)
{
	struct pieces p;
	int err;

	if (net_answer_lock(c, n, n->answer[n->answer_head % NET_READS].offset, length, &p)) {
		net_answer_fault(c, n, IBV_WC_REM_ACCESS_ERR);
		return -1;
	}
	err = net_copy_out(c, to, &p);
	net_place_unlock(n);
	if (err)
		net_answer_fault(c, n, IBV_WC_REM_OP_ERR);
	return err;
}

/* The next fragment of the oldest answer. */
static int stage_answer(struct net_conn *c, struct net_qp *n)
{
	struct net_answer *a = &n->answer[n->answer_head % NET_READS];
	uint32_t left = a->length - a->offset, length = left < NET_PAYLOAD_MAX ? left : NET_PAYLOAD_MAX;
	struct net_frame f = { .type = NET_DATA, .to = n->dest_qpn, .from = n->qpn, .life = n->rx_life, .seq = a->seq,
			       .length = length, .offset = a->offset, .total = a->length,
			       .flags = (uint8_t)((a->offset ? 0 : NET_FIRST) | (length == left ? NET_LAST : 0)) };
	char *to = net_frame_put(c, &f, length > NET_SMALL ? 0 : length);

	if (!to)
		return -EAGAIN;
	if (length > NET_SMALL) {
		c->source = NET_FROM_ANSWER;
		c->source_qp = n;
		c->source_offset = a->offset;
		c->source_left = length;
	} else if (a->atomic) {
		memcpy(to, &a->value, sizeof(a->value));
		answer_advance(n, length);
	} else if (answer_copy(c, n, length, to)) {
		c->out_end -= (uint32_t)sizeof(f) + length;
	} else {
		answer_advance(n, length);
	}
	return 0;
}

static int stage_due(struct net_conn *c)
{
	while (!list_empty(&c->due) && c->source == NET_FROM_NOTHING) {
		struct net_qp *n = container_of(c->due.next, struct net_qp, due_link);
		int turn;

		if (stage_word(c, n, NET_DUE_ACK) || stage_word(c, n, NET_DUE_READY))
			return -EAGAIN;
		for (turn = 0; turn < (int)NET_TURN && n->answer_head != n->answer_tail && c->source == NET_FROM_NOTHING; turn++)
			if (stage_answer(c, n))
				return -EAGAIN;
		/* Behind the answers to all that was before it. */
		if (n->answer_head == n->answer_tail && stage_word(c, n, NET_DUE_NAK))
			return -EAGAIN;
		list_del(&n->due_link);
		if (n->due || n->answer_head != n->answer_tail)
			list_add_tail(&c->due, &n->due_link);
	}
	return 0;
}

/* ---- requests ---- */

/* One queue pair's turn. */
static int stage_requests(struct net_conn *c, struct net_qp *n)
{
	struct sr_context *ctx = c->net->ctx;
	int turn, more = 1;

	if (unlikely(n->unreliable && !c->heard)) {
		list_del(&n->send_link);
		return 0;
	}
	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	for (turn = 0; turn < (int)NET_TURN && more == 1 && c->source == NET_FROM_NOTHING; turn++)
		more = net_request_stage(c, n);
	if (!net_request_gather(c, n))
		more = 0;
	rlock_release(&n->qp->shm->sq_lock);
	list_del(&n->send_link);
	if (more)
		list_add_tail(&c->sending, &n->send_link);
	else if (n->fault || n->unreliable)
		net_request_sent(c, n);
	return more < 0 ? -EAGAIN : 0;
}

static void stage(struct net_conn *c)
{
	if (stage_due(c))
		return;
	while (!list_empty(&c->sending) && c->source == NET_FROM_NOTHING)
		if (stage_requests(c, container_of(c->sending.next, struct net_qp, send_link)))
			return;
}

/* ---- to the socket ---- */

static void source_unlock(struct net_conn *c)
{
	if (c->source == NET_FROM_REQUEST)
		rlock_release(&c->source_qp->qp->shm->sq_lock);
	else if (c->source == NET_FROM_ANSWER)
		net_place_unlock(c->source_qp);
}

/* What is left of the long payload. 0, or -1 when it cannot be had any more; nothing is locked then. */
static int source_lock(struct net_conn *c, struct pieces *p)
{
	struct sr_context *ctx = c->net->ctx;
	struct net_qp *n = c->source_qp;
	int err = 0;

	p->n = 0;
	switch (c->source) {
	case NET_FROM_REQUEST:
		sr_sq_lock(ctx, &ctx->self, n->qp->shm);
		err = net_request_pieces(c, n, c->source_number, c->source_offset, c->source_left, p);
		if (err)
			rlock_release(&n->qp->shm->sq_lock);
		return err;
	case NET_FROM_ANSWER:
		return net_answer_lock(c, n, c->source_offset, c->source_left, p);
	case NET_FROM_SPILL:
		p->v[p->n++] = (struct iovec){ c->spill + c->source_offset, c->source_left };
		return 0;
	default:
		return 0;
	}
}

static long send_some(struct net_conn *c)
{
	struct iovec v[1 + SR_MAX_SGE + 2];
	struct msghdr m = { .msg_iov = v };
	struct pieces p;
	long r;

	if (c->source == NET_FROM_NOTHING)
		return RAW6(SYS_sendto, c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	if (source_lock(c, &p))
		return -EFAULT;
	if (c->out_at != c->out_end)
		v[m.msg_iovlen++] = (struct iovec){ c->out + c->out_at, c->out_end - c->out_at };
	memcpy(&v[m.msg_iovlen], p.v, p.n * sizeof(*p.v));
	m.msg_iovlen += p.n;
	r = RAW3(SYS_sendmsg, c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	source_unlock(c);
	return r;
}

static void source_done(struct net_conn *c, uint32_t sent)
{
	struct net_qp *n = c->source_qp;
	enum net_source source = c->source;

	if (source == NET_FROM_ANSWER)
		answer_advance(n, sent);
	c->source_offset += sent;
	c->source_left -= sent;
	if (c->source_left)
		return;
	c->source = NET_FROM_NOTHING;
	if (source == NET_FROM_REQUEST)
		net_request_sent(c, n);
}

static void consumed(struct net_conn *c, uint32_t sent)
{
	uint32_t head = c->out_end - c->out_at;

	head = sent < head ? sent : head;
	c->out_at += head;
	if (c->out_at == c->out_end)
		c->out_at = c->out_end = 0;
	if (sent > head)
		source_done(c, sent - head);
}

/*
 * Unmapped, or registered no more, when a part of it may have left: the frame cannot be ended, so the connection is. All begins again at
 * the next one, but for the queue pair that this belongs to.
 */
static void source_fault(struct net_conn *c)
{
	enum net_source source = c->source;
	struct net_qp *n = c->source_qp;

	c->source = NET_FROM_NOTHING;
	if (source == NET_FROM_REQUEST)
		net_request_fault(c, n, c->source_number);
	else if (source == NET_FROM_ANSWER)
		net_answer_fault(c, n, IBV_WC_REM_OP_ERR);
	net_conn_mute(c, "memory that was being sent is gone");
}

void net_pump(struct net_conn *c)
{
	long r;

	if (c->state == NET_DOWN && !list_empty(&c->sending))
		net_conn_dial(c);
	if (c->state != NET_UP || c->mute)
		return;
	c->urgent = 0;
	for (;;) {
		stage(c);
		if (c->out_at == c->out_end && c->source == NET_FROM_NOTHING) {
			net_conn_watch(c, 0);
			return;
		}
		r = send_some(c);
		if (r == -EAGAIN) {
			net_conn_watch(c, 1);
			return;
		}
		if (r == -EINTR)
			continue;
		if (r == -EFAULT) {
			source_fault(c);
			return;
		}
		if (r < 0) {
			net_conn_mute(c, NULL);
			return;
		}
		consumed(c, (uint32_t)r);
	}
}

int net_hand_over(struct net_conn *c)
{
	long r;

	for (;;) {
		stage_due(c);
		if (c->out_at == c->out_end && c->source == NET_FROM_NOTHING)
			return 0;
		r = send_some(c);
		if (r >= 0)
			consumed(c, (uint32_t)r);
		else if (r != -EINTR)
			return (int)r;
	}
}

void net_spill(struct net_conn *c, struct net_qp *n)
{
	struct pieces p;
	int err, locked;

	if (c->source_qp != n || (c->source != NET_FROM_REQUEST && c->source != NET_FROM_ANSWER))
		return;
	if (!c->spill)
		c->spill = arena_alloc(&c->net->ctx->arena, NET_PAYLOAD_MAX);
	p.n = 0;
	if (c->source == NET_FROM_ANSWER)
		err = net_answer_lock(c, n, c->source_offset, c->source_left, &p);
	else
		err = net_request_pieces(c, n, c->source_number, c->source_offset, c->source_left, &p);
	locked = !err && c->source == NET_FROM_ANSWER;
	if (!err && c->spill)
		err = net_copy_out(c, c->spill, &p);
	if (locked)
		net_place_unlock(n);
	c->source = NET_FROM_SPILL;
	c->source_qp = NULL;
	c->source_offset = 0;
	if (err || !c->spill) /* the frame cannot be ended: the stream is worth nothing */
		RAW2(SYS_shutdown, c->fd, SHUT_RDWR);
}
