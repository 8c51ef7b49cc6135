/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the requester's side share: net_request.c, net_send.c, net_reply.c. */
#pragma once

#include "softrdma/net.h"

static inline struct sr_context *net_ctx(const struct net_conn *c) { return c->net->ctx; }

static inline struct sr_wqe *net_wqe(const struct net_conn *c, const struct net_qp *n, uint32_t number)
{
	return sr_sq_slot(net_ctx(c)->seg, n->qp->shm, number);
}

/* What ends it is DATA, not an ACK. */
static inline int net_is_answered(const struct sr_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline struct sr_run net_run_of(const struct net_conn *c, const struct net_qp *n)
{
	struct sr_context *ctx = net_ctx(c);

	return (struct sr_run){ .ctx = ctx, .src = &ctx->self, .q = n->qp->shm, .mine = 1 };
}

/* A fault ends it when all before that is complete: what a break took with it of that is still sent. */
static inline int net_is_stopped(const struct net_qp *n)
{
	return n->fault && !net_before(n->next, n->fault_at);
}

static inline void net_busy_end(struct net_qp *n)
{
	list_del(&n->busy_link);
}

/* Is there a request that was begun and is not complete? A NAK or a break takes next back, not that. */
static inline int net_has_begun(const struct net_qp *n)
{
	return net_before(atomic_load(&n->qp->shm->sq_head), n->sent);
}

/* Of two faults that of the older request counts. */
static inline void net_fault_set(struct net_qp *n, uint32_t number, enum ibv_wc_status status)
{
	if (n->fault && !net_before(number, n->fault_at))
		return;
	n->fault = status;
	n->fault_at = number;
}

/* READs and atomics that are not answered. */
static inline void net_under_way_count(struct net_qp *n, const struct sr_wqe *w, uint32_t one)
{
	if (w->opcode == IBV_WR_RDMA_READ)
		n->reads += one;
	else if (net_is_answered(w))
		n->atomics += one;
}

/* net_request.c */
/* Completes what can be, and tells the fault whose turn it is. */
void net_complete(struct net_conn *c, struct net_qp *n);

/* net_send.c */
/* The whole of a request's own memory. 0, or the status that it fails with. */
int net_local_pieces(struct net_conn *c, struct net_qp *n, struct sr_wqe *w, struct pieces *p);
