/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections (IBA, annex A14): their domains, and how a request finds the shared receive queue
 * that it names. A domain is a number: the same for all who open it by one file, whatever process they are in, else
 * nobody else's. The queue's number says in whose segment it lies; it is the target's context as a rule, another of
 * the domain's at times.
 *
 * A target queue pair lives as long as the process that made it, whoever else has opened it (ibv_open_qp): such a handle
 * shows its state, and its end ends nothing but the handle.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "softrdma/engine.h"

static uint64_t domain_id(struct sr_context *ctx, int fd)
{
	uint64_t id = sr_random(ctx);
	struct stat st;

	if (fd >= 0) {
		if (fstat(fd, &st))
			return 0;
		id = (uint64_t)st.st_dev * 0x9e3779b97f4a7c15ull ^ (uint64_t)st.st_ino ^ (uint64_t)ctx->device << 56;
	}
	return id ? id : 1;
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct sr_context *ctx = sr_context(context);
	struct sr_xrcd *x;
	uint64_t id;

	if (attr->comp_mask != both) {
		errno = EINVAL;
		return NULL;
	}
	id = domain_id(ctx, attr->fd);
	if (!id)
		return NULL;
	x = arena_alloc(&ctx->arena, sizeof(*x));
	if (!x) {
		errno = ENOMEM;
		return NULL;
	}
	x->xrcd.context = context;
	x->id = id;
	return &x->xrcd;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct sr_xrcd *x = sr_xrcd(xrcd);

	if (atomic_load(&x->users))
		return EBUSY;
	arena_free(&sr_context(xrcd->context)->arena, x);
	return 0;
}

/* The target of that number in the domain, in whatever context. *ret_peer is to be put back. */
static struct sr_shm_qp *target_find(struct sr_context *ctx, uint32_t qpn, uint64_t domain, struct sr_peer **ret_peer)
{
	struct sr_peer *p = sr_peer_get(ctx, qpn >> SR_QP_BITS);
	struct sr_shm_qp *q = p && sr_peer_alive(ctx, p) ? sr_qp_find(p->seg, qpn) : NULL;

	if (q && q->qpn == qpn && q->type == IBV_QPT_XRC_RECV && q->xrcd == domain) {
		*ret_peer = p;
		return q;
	}
	sr_peer_put(ctx, p);
	return NULL;
}

static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct sr_context *ctx = sr_context(context);
	struct sr_shm_qp *q;
	struct sr_peer *p;
	struct sr_qp *qp;

	if ((attr->comp_mask & needed) != needed || (attr->comp_mask & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT)) ||
	    attr->qp_type != IBV_QPT_XRC_RECV) {
		errno = EINVAL;
		return NULL;
	}
	q = target_find(ctx, attr->qp_num, sr_xrcd(attr->xrcd)->id, &p);
	qp = q ? arena_alloc(&ctx->arena, sizeof(*qp)) : NULL;
	if (!qp) {
		if (q)
			sr_peer_put(ctx, p);
		errno = q ? ENOMEM : EINVAL;
		return NULL;
	}
	qp->shm = q;
	qp->opened = 1;
	qp->xrcd = sr_xrcd(attr->xrcd);
	atomic_store(&qp->peer, p);
	atomic_fetch_add(&qp->xrcd->users, 1);
	qp->qp = (struct ibv_qp){ .context = context, .qp_num = attr->qp_num, .qp_type = IBV_QPT_XRC_RECV,
				  .qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL };
	qp->qp.state = sr_opened_state(qp);
	return &qp->qp;
}

/* One that is gone is in error. */
enum ibv_qp_state sr_opened_state(const struct sr_qp *qp)
{
	struct sr_peer *p = atomic_load(&qp->peer);

	if (qp->shm->qpn != qp->qp.qp_num || !sr_peer_alive(sr_context(qp->qp.context), p))
		return IBV_QPS_ERR;
	return atomic_load(&qp->shm->state);
}

void sr_qp_close(struct sr_qp *qp)
{
	struct sr_context *ctx = sr_context(qp->qp.context);

	sr_peer_put(ctx, atomic_load(&qp->peer));
	atomic_fetch_sub(&qp->xrcd->users, 1);
	arena_free(&ctx->arena, qp);
}

void sr_xrc_fill(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
	v->open_qp = open_qp;
	v->get_srq_num = sr_get_srq_num;
}

int sr_xrc_respond(struct sr_run *r, struct op *o)
{
	uint32_t index = o->w->target >> SR_QP_BITS;
	int there = index == r->dst->seg->index, status;
	struct sr_peer *to = there ? r->dst : sr_peer_get(r->ctx, index);

	o->rq = to ? sr_srq_find(to->seg, o->w->target) : NULL;
	if (!o->rq || !o->rq->xrcd || o->rq->xrcd != o->d->xrcd) {
		status = sr_refuse(r, o, IBV_WC_REM_INV_REQ_ERR);
	} else if (!to->local && !r->src->local) {
		status = STALL_RNR; /* a third one's memory: the requester will see to it itself */
	} else {
		o->to = to;
		o->pd = o->rq->pd;
		status = sr_respond(r, o);
	}
	if (to && !there) {
		sr_peer_keep(r->ctx, to);
		sr_peer_put(r->ctx, to);
	}
	return status;
}
