/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * There is no hardware that works while a program spins: on a host with more spinners than processors the one that
 * is waited for may need this one's. How many empty polls go before a yield follows from what came of the last: if
 * it brought the completion, and took so long that somebody else was at work meanwhile, fewer, for both share a processor; if
 * spinning did, or nobody wanted the processor, more. Yields in vain become seldom: UCX polls under a
 * spin lock that its other threads wait for, and while we are away with it they get nothing done.
 *
 * The yield comes before the look at the queue that follows: an empty answer is never older than it. A program takes that for an order of
 * events: what it sees elsewhere after it (rdma_cm's disconnection) came after all completions.
 *
 * The counters are the queue's, without a lock: when several threads poll they are about right.
 */
#include <sched.h>

#include "softrdma/device.h"

#define SPINS_MIN 8
#define SPINS_MAX 256
#define SPINS_IN_VAIN 4096
#define YIELD_ALONE_NS 800 /* one that finds nobody else takes 200, one with two switches of process at least 1200 */
#define LOOSE(p) atomic_load_explicit(p, memory_order_relaxed)
#define SET_LOOSE(p, v) atomic_store_explicit(p, v, memory_order_relaxed)

void sr_cq_polled(struct sr_cq *cq, int got)
{
	uint32_t empty = LOOSE(&cq->empty_polls), spins = LOOSE(&cq->spins), yielded = LOOSE(&cq->yielded);

	if (got) {
		if (yielded == SR_YIELD_SHARED && !empty)
			SET_LOOSE(&cq->spins, spins > SPINS_MAX ? SPINS_MAX : spins > 2 * SPINS_MIN ? spins / 2 : SPINS_MIN);
		else if (empty | yielded && spins < SPINS_MAX)
			SET_LOOSE(&cq->spins, spins * 2);
		if (empty | yielded) {
			SET_LOOSE(&cq->empty_polls, 0);
			SET_LOOSE(&cq->yielded, SR_YIELD_NONE);
		}
		return;
	}
	SET_LOOSE(&cq->empty_polls, ++empty < spins ? empty : 0);
	if (empty < spins)
		return;
	if (yielded && spins < SPINS_IN_VAIN)
		SET_LOOSE(&cq->spins, spins * 2);
	SET_LOOSE(&cq->yielded, SR_YIELD_DUE);
}

void sr_cq_polling(struct sr_cq *cq)
{
	uint64_t start;

	if (likely(LOOSE(&cq->yielded) != SR_YIELD_DUE))
		return;
	start = sr_now_ns();
	sched_yield();
	SET_LOOSE(&cq->yielded, sr_now_ns() - start < YIELD_ALONE_NS ? SR_YIELD_ALONE : SR_YIELD_SHARED);
}
