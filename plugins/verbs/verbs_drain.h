/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the drain have in common: verbs_drain.c argues it. */
#pragma once

#include "plugins/verbs/verbs_internal.h"

#define PATIENCE 16 /* rounds, after which what nobody tells of counts as pending */
#define IDLE 3	    /* rounds without an arrival, after which nothing is on the way to who is told by no count */

enum peer { PEER_UNKNOWN, PEER_APART, PEER_FAILED, PEER_CONNECTED };

/* verbs_drain_sqd.c */
int verbs_sqd_quiet(struct shadow_qp *qp, unsigned int round);
/* P, as the peer has to know it. */
uint64_t verbs_sends_of(const struct shadow_qp *qp);

static inline uint64_t outstanding(const struct verbs_ring *r)
{
	return atomic_load(&r->head) - atomic_load(&r->tail);
}

/* That are not executed; those that have not completed, of a device that does not tell. */
static inline uint64_t sends_left(const struct shadow_qp *qp)
{
	return verbs_backend.softrdma_sends_left ? VERBS_DEVICE(verbs_backend.softrdma_sends_left(qp->real)) : outstanding(&qp->sq);
}
