/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the bytes of a message from another host belong, and where those of an answer lie: found and checked anew for each piece of work, under
 * the queue pair's rx_lock, which is held while they are moved.
 *
 * A fault that is found while a fragment is to be placed is told by the engine (respond.c), which is asked for the whole request. By then the
 * program may have mended it (a receive posted, a region registered again), but the data is nowhere: so the engine is told, and
 * never completes such a request, nor looks for the receive that was not there. Under the connection's lock.
 */
#include "base/sys.h"
#include "softrdma/net_respond.h"

int net_answer_lock(struct net_conn *c, struct net_qp *n, uint32_t offset, uint32_t length, struct pieces *p)
{
	struct net_answer *a = &n->answer[n->answer_head % NET_READS];
	struct sr_context *ctx = c->net->ctx;
	struct sr_shm_qp *d = n->qp->shm;
	uint64_t va;

	sr_rx_lock(ctx, &ctx->self, d);
	if (sr_rkey_check(ctx->seg, a->rkey, a->address + offset, length, IBV_ACCESS_REMOTE_READ, a->pd, d->qpn, &va)) {
		rlock_release(&d->rx_lock);
		return -1;
	}
	p->v[0] = (struct iovec){ (void *)(uintptr_t)va, length };
	p->n = 1;
	return 0;
}

static int receives(const struct net_frame *f)
{
	return f->opcode != NET_WRITE && f->opcode < NET_READ ? 1 : f->opcode == NET_SEND_INV;
}

static int is_send(const struct net_frame *f)
{
	return f->opcode == NET_SEND || f->opcode == NET_SEND_IMM || f->opcode == NET_SEND_INV;
}

/* No receive is there, and who posts one has been told to say so: with a second look, as one may have come in between. */
static int no_receive(struct net_qp *n, struct net_work *k)
{
	uint32_t slot;

	if (sr_rq_peek(&k->r, &k->o, &slot))
		return 0;
	if (n->unreliable)
		return 1;
	atomic_store(&k->o.d->peer_waits, 1);
	if (k->o.rq->shared)
		atomic_store(&k->o.rq->waiters, 1);
	return !sr_rq_peek(&k->r, &k->o, &slot);
}

/* The pieces of the receive that the message goes to. 0, or what the engine has to be asked about. */
static int receive_pieces(struct net_work *k, const struct net_frame *f, uint32_t offset, uint32_t length, struct pieces *p)
{
	struct sr_rwqe *rw;
	struct pieces all = { .n = 0 };
	uint32_t slot;

	rw = sr_rq_peek(&k->r, &k->o, &slot);
	if (!rw || f->total > rw->length)
		return -1;
	if (gather(&all, k->o.to->seg, k->o.pd, rw->sge, rw->nsge, f->total, IBV_ACCESS_LOCAL_WRITE))
		return -1;
	net_cut(&all, offset, length, p);
	return 0;
}

/* The last bytes apart: they are there when all others are, for who watches them. */
static void stretch(struct pieces *p, uint64_t va, uint32_t length)
{
	uint32_t tail = length > 8 ? 8 : 0;

	p->v[0] = (struct iovec){ (void *)(uintptr_t)va, length - tail };
	p->v[1] = (struct iovec){ (void *)(uintptr_t)(va + length - tail), tail };
	p->n = 1 + !!tail;
}

static int write_pieces(struct net_work *k, const struct net_frame *f, uint32_t offset, uint32_t length, struct pieces *p)
{
	uint64_t va;

	if (!(k->o.d->access & IBV_ACCESS_REMOTE_WRITE) ||
	    sr_rkey_check(k->o.to->seg, f->rkey, f->address, f->total, IBV_ACCESS_REMOTE_WRITE, k->o.pd, k->o.d->qpn, &va))
		return -1;
	stretch(p, va + offset, length);
	return 0;
}

int net_place_lock(struct net_conn *c, struct net_qp *n, const struct net_frame *f, uint32_t offset, uint32_t length,
		   struct pieces *p)
{
	struct sr_context *ctx = c->net->ctx;
	int status = STALL_UNREACHABLE, err = -1;
	struct net_work k;

	net_work_fill(c, n, f, &k);
	sr_rx_lock(ctx, &ctx->self, k.o.d);
	if (net_responds(k.o.d)) {
		if (net_owner_find(&k))
			status = sr_refuse(&k.r, &k.o, IBV_WC_REM_INV_REQ_ERR);
		else
			err = is_send(f) ? 0 : write_pieces(&k, f, f->offset + offset, length, p);
		/* Not asked of the engine: a receive that is posted meanwhile would be taken for one that has its data. */
		if (!err && receives(f) && no_receive(n, &k))
			err = 1;
		else if (!err && is_send(f))
			err = receive_pieces(&k, f, f->offset + offset, length, p);
		if (!err)
			return 0;
		k.o.data = OP_UNPLACED;
		if (status < 0)
			status = err > 0 ? STALL_RNR : net_respond(n, &k);
	}
	rlock_release(&k.o.d->rx_lock);
	net_outcome(c, n, f, status, k.r.failed != 0);
	return -1;
}

void net_respond_fault(struct net_conn *c, struct net_qp *n, const struct net_frame *f)
{
	struct sr_context *ctx = c->net->ctx;
	int status = STALL_UNREACHABLE;
	struct net_work k;
	uint32_t slot;

	net_work_fill(c, n, f, &k);
	sr_rx_lock(ctx, &ctx->self, k.o.d);
	if (net_responds(k.o.d) && is_send(f) && !net_owner_find(&k) && sr_rq_peek(&k.r, &k.o, &slot))
		status = sr_receive_fault(&k.r, &k.o, slot, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	else if (net_responds(k.o.d))
		status = sr_refuse(&k.r, &k.o, IBV_WC_REM_OP_ERR);
	rlock_release(&k.o.d->rx_lock);
	net_outcome(c, n, f, status, k.r.failed != 0);
}

/* Taken in already, so it is taken back: what is expected is that request again. */
void net_answer_fault(struct net_conn *c, struct net_qp *n, enum ibv_wc_status status)
{
	const struct net_answer *a = &n->answer[n->answer_head % NET_READS];
	const struct net_frame f = { .type = NET_REQUEST, .opcode = NET_READ, .seq = a->seq };
	struct sr_context *ctx = c->net->ctx;
	struct net_work k;

	n->expected = a->seq;
	n->answer_head = n->answer_tail;
	net_work_fill(c, n, &f, &k);
	sr_rx_lock(ctx, &ctx->self, k.o.d);
	sr_refuse(&k.r, &k.o, status);
	rlock_release(&k.o.d->rx_lock);
	net_outcome(c, n, &f, status, k.r.failed != 0);
}

void net_place_unlock(struct net_qp *n)
{
	rlock_release(&n->qp->shm->rx_lock);
}

void net_fragment_done(struct net_conn *c, struct net_qp *n, const struct net_frame *f)
{
	struct net_work k;

	n->rx_offset += f->length;
	if (!(f->flags & NET_LAST))
		return;
	net_work_fill(c, n, f, &k);
	k.o.data = OP_PLACED;
	net_execute(c, n, f, &k);
}

void net_fragment_take(struct net_conn *c, struct net_qp *n, const struct net_frame *f, const char *payload)
{
	struct pieces p;
	int err;

	if (net_place_lock(c, n, f, 0, f->length, &p))
		return;
	err = net_copy_in(c, &p, payload);
	net_place_unlock(n);
	if (err)
		net_respond_fault(c, n, f);
	else
		net_fragment_done(c, n, f);
}
