/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the handles: small numbers of queue pairs, which stand in each wr_id that the device is given, so that a
 * completion finds its queue and slot without a search, also when several queues share a completion queue. A handle's
 * generation tells completions of a queue that was reset or destroyed: they are dropped.
 *
 * Two levels, so that readers need no lock: a chunk, once there, stays. Changes are under verbs_lock.
 */
#include "plugins/verbs/verbs_internal.h"

struct shadow_qp **verbs_handle_chunks[VERBS_HANDLE_CHUNKS];

static uint32_t next_index;
static uint8_t next_generation;

static struct shadow_qp **entry_of(uint32_t index)
{
	struct shadow_qp ***chunk = &verbs_handle_chunks[index / VERBS_HANDLE_CHUNK];

	if (!*chunk)
		*chunk = fermata_alloc(VERBS_HANDLE_CHUNK * sizeof(**chunk));
	return *chunk ? *chunk + index % VERBS_HANDLE_CHUNK : NULL;
}

static void handle_set(struct shadow_qp *qp, uint32_t index)
{
	qp->sq.handle = (uint32_t)next_generation++ << 22 | index;
	qp->rq.handle = qp->sq.handle | VERBS_HANDLE_RECEIVE;
}

static uint32_t index_of(const struct shadow_qp *qp)
{
	return qp->sq.handle & 0x3fffff;
}

int verbs_handle_draw(struct shadow_qp *qp)
{
	struct shadow_qp **entry = NULL;
	uint32_t tries = 0;

	lock_acquire(&verbs_lock);
	for (; tries < VERBS_HANDLE_CHUNK * VERBS_HANDLE_CHUNKS; tries++) {
		entry = entry_of(next_index);
		if (!entry || !*entry)
			break;
		next_index = (next_index + 1) % (VERBS_HANDLE_CHUNK * VERBS_HANDLE_CHUNKS);
	}
	if (entry && !*entry) {
		handle_set(qp, next_index);
		*entry = qp;
		/* numbers are used again late, but stay dense */
		next_index = (next_index + 1) % VERBS_HANDLE_CHUNK;
	} else {
		entry = NULL;
	}
	lock_release(&verbs_lock);
	return entry ? 0 : -ENOMEM;
}

void verbs_handle_drop(struct shadow_qp *qp)
{
	lock_acquire(&verbs_lock);
	*entry_of(index_of(qp)) = NULL;
	lock_release(&verbs_lock);
}

void verbs_handle_renew(struct shadow_qp *qp)
{
	lock_acquire(&verbs_lock);
	handle_set(qp, index_of(qp));
	lock_release(&verbs_lock);
}
