/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the drain have in common: verbs_drain.c argues it. */
#pragma once

#include "plugins/verbs/verbs_internal.h"

#define PATIENCE 16 /* rounds, after which what nobody tells of counts as pending */
#define IDLE 3	    /* rounds without an arrival, after which nothing is on the way to an unreliable queue pair */

enum peer { PEER_UNKNOWN, PEER_APART, PEER_FAILED, PEER_CONNECTED };

static inline uint64_t outstanding(const struct verbs_ring *r)
{
	return atomic_load(&r->head) - atomic_load(&r->tail);
}
