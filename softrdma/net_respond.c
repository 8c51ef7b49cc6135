/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's side of a queue pair that leads to another host. What is executed is executed by the engine's own
 * responder (respond.c), as if a requester of this process had asked for it: a short request from the buffer that it came
 * in; of a longer one each fragment is placed first (net_place.c), and with its last one the engine is told that the data is there.
 *
 *   expected    the request that comes next; all before it are executed
 *   rx_offset   how much of its message is placed
 *
 * Under the connection's lock; rx_lock is taken for each piece of work.
 */
#include "base/sys.h"
#include "softrdma/net_respond.h"

struct net_qp *net_qp_find(struct net_conn *c, uint32_t qpn)
{
	struct net_qp *n = atomic_load(&c->net->qp[qpn % SR_MAX_QP]);

	return n && n->conn == c && n->qpn == qpn ? n : NULL;
}

void net_work_fill(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k)
{
	struct sr_context *ctx = c->net->ctx;
	struct sr_shm_qp *d = n->qp->shm;

	k->r = (struct sr_run){ .ctx = ctx, .src = &ctx->self, .dst = &ctx->self, .q = d };
	k->w = (struct sr_wqe){ .remote_addr = f->address, .rkey = f->rkey, .opcode = f->opcode, .imm = f->imm,
				.length = f->total, .compare_add = f->compare, .swap = f->swap, .target = f->target,
				.flags = f->flags & NET_SOLICITED ? IBV_SEND_SOLICITED : 0 };
	k->o.w = &k->w;
	k->o.d = d;
	k->o.to = &ctx->self;
	k->o.from = &c->net->arrived;
	k->o.rq = sr_at(ctx->seg, d->rq);
	k->o.pd = d->pd;
	k->o.byte_len = 0;
	k->o.data = OP_TO_MOVE;
	k->o.local.n = 0;
}

int net_owner_find(struct net_work *k)
{
	if (k->o.d->type != IBV_QPT_XRC_RECV)
		return 0;
	k->o.rq = sr_srq_find(k->r.ctx->seg, k->w.target);
	if (!k->o.rq || !k->o.rq->xrcd || k->o.rq->xrcd != k->o.d->xrcd)
		return -1;
	k->o.pd = k->o.rq->pd;
	return 0;
}

/* ---- outcomes ---- */

static void absent(struct net_conn *c, const struct net_frame *f)
{
	const struct net_frame nak = { .type = NET_NAK, .status = NET_ABSENT, .to = f->from, .from = f->to,
				       .life = f->life, .seq = f->seq };

	net_frame_put(c, &nak, 0); /* no room: its clock will see to it */
	c->urgent = 1;
}

static uint32_t nak_of(int status)
{
	switch (status) {
	case STALL_RNR:
		return NET_RNR;
	case STALL_UNREACHABLE:
		return NET_ABSENT;
	case IBV_WC_REM_INV_REQ_ERR:
		return NET_INVALID_REQUEST;
	case IBV_WC_REM_ACCESS_ERR:
		return NET_REMOTE_ACCESS;
	default:
		return NET_REMOTE_OPERATION;
	}
}

void net_outcome(struct net_conn *c, struct net_qp *n, const struct net_frame *f, int status, int failed)
{
	n->rx_offset = 0;
	if (n->unreliable) {
		n->expected++;
	} else if (!status) {
		n->expected++;
		net_due_add(c, n, NET_DUE_ACK);
		/* A program that gets something says something itself, as a rule: the ACK goes with it. */
		c->urgent |= n->answer_head != n->answer_tail;
	} else {
		n->nak_status = nak_of(status);
		n->nak_timer = n->qp->shm->own_rnr_timer;
		n->refused = status > 0;
		net_due_add(c, n, NET_DUE_NAK);
		c->urgent = 1;
	}
	if (failed)
		net_flush(c, n);
}

/* Tells the owner of the receives that we wait for one, then looks once more. rx_lock held. */
int net_respond(struct net_qp *n, struct net_work *k)
{
	int xrc = k->o.d->type == IBV_QPT_XRC_RECV;
	int status = xrc ? sr_xrc_respond(&k->r, &k->o) : sr_respond(&k->r, &k->o);

	if (status != STALL_RNR || n->unreliable)
		return status;
	atomic_store(&k->o.d->peer_waits, 1);
	if (k->o.rq->shared)
		atomic_store(&k->o.rq->waiters, 1);
	return xrc ? sr_xrc_respond(&k->r, &k->o) : sr_respond(&k->r, &k->o);
}

void net_execute(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k)
{
	struct sr_context *ctx = c->net->ctx;
	int status = STALL_UNREACHABLE;

	sr_rx_lock(ctx, &ctx->self, k->o.d);
	if (net_responds(k->o.d))
		status = net_respond(n, k);
	if (unlikely(!k->o.d->established && status >= 0))
		sr_established(&k->r, k->o.d);
	rlock_release(&k->o.d->rx_lock);
	net_outcome(c, n, f, status, k->r.failed != 0);
}

/* ---- which request is taken ---- */

static struct net_answer *answer_push(struct net_qp *n, const struct net_frame *f, uint32_t pd)
{
	struct net_answer *a = &n->answer[n->answer_tail % NET_READS];

	if (n->answer_tail - n->answer_head == NET_READS)
		return NULL;
	*a = (struct net_answer){ .seq = f->seq, .rkey = f->rkey, .address = f->address, .length = f->total,
				   .pd = pd };
	n->answer_tail++;
	return a;
}

/* Executed already: it is said again; a READ is read again. */
static void duplicate(struct net_conn *c, struct net_qp *n, const struct net_frame *f)
{
	struct net_answer *a = NULL;
	struct net_work k;

	net_work_fill(c, n, f, &k);
	if (f->opcode == NET_READ && !net_owner_find(&k)) {
		answer_push(n, f, k.o.pd);
	} else if (f->opcode == NET_COMPARE_SWAP || f->opcode == NET_FETCH_ADD) {
		uint32_t slot = f->seq % NET_READS;

		if (n->result_seq[slot] == f->seq)
			a = answer_push(n, f, 0);
		if (a) {
			a->atomic = 1;
			a->value = n->result[slot];
		}
	}
	net_due_add(c, n, NET_DUE_ACK);
	c->urgent = 1;
}

static struct net_qp *unreliable_accept(struct net_qp *n, const struct net_frame *f)
{
	if (f->opcode >= NET_READ)
		return NULL;
	if (f->flags & NET_FIRST) {
		n->expected = f->seq;
		n->rx_offset = 0;
	}
	return f->seq == n->expected && f->offset == n->rx_offset ? n : NULL;
}

/* Who receives has receives, or names whose they are: an extended connection's initiator has none. */
static int has_receiver(const struct sr_shm_qp *d)
{
	return d->type == IBV_QPT_RC || d->type == IBV_QPT_UC || d->type == IBV_QPT_XRC_RECV;
}

/* What comes for another port or partition is not heard. */
static int is_for(const struct net_qp *n, const struct net_frame *f)
{
	const struct sr_shm_qp *d = n->qp->shm;

	return f->from == n->dest_qpn && n->unreliable == !!(f->flags & NET_UNRELIABLE) && f->site == d->site &&
	       sr_pkeys_match(f->pkey, d->pkey) && has_receiver(d);
}

/* One that has refused a request for good is in error since: it says the same again, if that was lost. */
static void gone(struct net_conn *c, struct net_qp *n, const struct net_frame *f)
{
	if (!n || !is_for(n, f) || !n->refused || n->rx_life != f->life) {
		absent(c, f);
		return;
	}
	net_due_add(c, n, NET_DUE_NAK);
	c->urgent = 1;
}

struct net_qp *net_request_accept(struct net_conn *c, const struct net_frame *f)
{
	struct net_qp *n = net_qp_find(c, f->to);
	int ahead;

	if (!n || !is_for(n, f) || !net_responds(n->qp->shm)) {
		if (!(f->flags & NET_UNRELIABLE) && (f->flags & NET_FIRST))
			gone(c, n, f);
		return NULL;
	}
	if (n->unreliable)
		return unreliable_accept(n, f);
	if (!n->rx_known && !f->seq) {
		n->rx_known = 1;
		n->rx_life = f->life;
		n->expected = n->rx_offset = 0;
	}
	if (!n->rx_known || n->rx_life != f->life) {
		if (f->flags & NET_FIRST)
			absent(c, f);
		return NULL;
	}
	ahead = (int)(f->seq - n->expected);
	if (ahead < 0 && (f->flags & NET_LAST))
		duplicate(c, n, f);
	if (ahead)
		return NULL;
	if (!f->offset)
		n->rx_offset = 0;
	return f->offset == n->rx_offset ? n : NULL;
}

/* Only who is not there says so. */
void net_ping_take(struct net_conn *c, const struct net_frame *f)
{
	struct net_qp *n = net_qp_find(c, f->to);

	if (f->to && (!n || !is_for(n, f) || !net_responds(n->qp->shm)))
		gone(c, n, f);
}

/* ---- READs and atomics ---- */

static void take_read(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k)
{
	struct sr_context *ctx = c->net->ctx;
	int status = STALL_UNREACHABLE;
	uint64_t va;

	sr_rx_lock(ctx, &ctx->self, k->o.d);
	if (net_responds(k->o.d))
		status = net_owner_find(k) ? sr_refuse(&k->r, &k->o, IBV_WC_REM_INV_REQ_ERR)
				       : sr_remote_check(&k->r, &k->o, IBV_ACCESS_REMOTE_READ, f->total, &va);
	if (!status && !answer_push(n, f, k->o.pd))
		status = sr_refuse(&k->r, &k->o, IBV_WC_REM_INV_REQ_ERR);
	rlock_release(&k->o.d->rx_lock);
	net_outcome(c, n, f, status, k->r.failed != 0);
}

static void take_atomic(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k)
{
	uint32_t slot = f->seq % NET_READS, before = n->expected;
	uint64_t old = 0;
	struct net_answer *a;

	if (n->answer_tail - n->answer_head == NET_READS)
		return; /* more than it may have under way */
	k->r.dst = k->o.to = &c->net->here; /* the same context, but its memory is moved by the kernel */
	k->o.local = (struct pieces){ .v = { { &old, sizeof(old) } }, .n = 1 };
	net_execute(c, n, f, k);
	if (n->expected == before)
		return;
	n->result_seq[slot] = f->seq;
	n->result[slot] = old;
	a = answer_push(n, f, 0);
	a->atomic = 1;
	a->value = old;
	c->urgent = 1;
}

void net_request_take(struct net_conn *c, struct net_qp *n, const struct net_frame *f, char *payload)
{
	struct net_work k;

	if (f->length != f->total && f->opcode != NET_READ && f->opcode != NET_COMPARE_SWAP && f->opcode != NET_FETCH_ADD) {
		net_fragment_take(c, n, f, payload);
		return;
	}
	net_work_fill(c, n, f, &k);
	if (f->opcode == NET_READ) {
		take_read(c, n, f, &k);
	} else if (f->opcode == NET_COMPARE_SWAP || f->opcode == NET_FETCH_ADD) {
		take_atomic(c, n, f, &k);
	} else {
		k.o.local = (struct pieces){ .v = { net_arrived(c, payload, f->length) }, .n = 1 };
		net_execute(c, n, f, &k);
	}
}

/* After a break: what was half there is sent again, and what was not answered asked for again. */
void net_respond_reset(struct net_qp *n)
{
	n->due = 0;
	list_del(&n->due_link);
	n->answer_head = n->answer_tail;
	n->rx_offset = 0;
}
