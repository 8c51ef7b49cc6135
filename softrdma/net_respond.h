/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the responder's side share: net_respond.c, net_place.c. */
#pragma once

#include "softrdma/net.h"

/* A request as the engine sees it. */
struct net_work {
	struct sr_run r;
	struct op o;
	struct sr_wqe w;
};

static inline int net_responds(const struct sr_shm_qp *d)
{
	uint32_t state = atomic_load_explicit(&d->state, memory_order_acquire);

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

void net_work_fill(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k);
/* Of an extended connection the receives and the domain are those of a shared queue of this context. 0 or -1. */
int net_owner_find(struct net_work *k);
/* What the engine has said: that is what the requester is told. No lock but the connection's is held. */
void net_outcome(struct net_conn *c, struct net_qp *n, const struct net_frame *f, int status, int failed);
/* Asks the engine; who is not ready tells when he is. rx_lock held. */
int net_respond(struct net_qp *n, struct net_work *k);
void net_execute(struct net_conn *c, struct net_qp *n, const struct net_frame *f, struct net_work *k);

/* net_place.c */
/* A fragment that has come as a whole. */
void net_fragment_take(struct net_conn *c, struct net_qp *n, const struct net_frame *f, const char *payload);
