/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections (IBA, annex A14): their domains, and how a request finds the shared receive queue
 * that it names. A domain is a number: the same for all who open it by one file, whatever process they are in, else
 * nobody else's. The queue's number says in whose segment it lies; it is the target's context as a rule, another of
 * the domain's at times.
 *
 * A target queue pair lives as long as the process that made it; it has no other handles (ibv_open_qp).
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

void sr_xrc_fill(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
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
