/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * There is no hardware that works while a program spins: on a host with more spinners than processors the one that
 * is waited for may need this one's. How many empty polls go before a yield follows from what came of the last: if
 * it brought the completion, and took so long that somebody else was at work meanwhile, fewer, for both share a processor; if
 * spinning did, or nobody wanted the processor, more. Yields in vain become seldom.
 *
 * The process's own threads are another matter. UCX polls under a spin lock that its other threads wait for: who yields
 * in the poll, while they are on this processor (Open MPI binds a rank with all its threads to one), gives them whole slices of time in
 * which they cannot but spin, takes none in which he would lie outside the lock, and they never get it. As with an adapter it is the
 * scheduler's clock alone that must take the processor from him, wherever he is. So a yield that took a slice makes the next ones measure
 * who had the time, and where it was the process itself they become so seldom that they do no harm. (Since Linux 6.18 one that yields
 * gives up all of his share until the others have had theirs: 79104becf42b, "Forfeit vruntime on yield".)
 *
 * The yield comes before the look at the queue that follows: an empty answer is never older than it. A program takes that for an order of
 * events: what it sees elsewhere after it (rdma_cm's disconnection) came after all completions.
 *
 * The counters are the queue's, without a lock: when several threads poll they are about right.
 */
#include <sched.h>
#include <time.h>

#include "softrdma/device.h"

#define SPINS_MIN 8
#define SPINS_MAX 256
#define SPINS_IN_VAIN 4096
#define SPINS_OF_SIBLINGS (1U << 20) /* tens of milliseconds */
#define YIELD_ALONE_NS 800 /* one that finds nobody else takes 200, one with two switches of process at least 1200 */
#define YIELD_SLICE_NS 200000 /* nobody gave the processor back */
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

/* Of all its threads; this one uses none while it is away. */
static uint64_t process_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sr_cq_polling(struct sr_cq *cq)
{
	uint64_t start, away, used = 0;
	uint32_t slice; /* below that much the calls themselves would count */

	if (likely(LOOSE(&cq->yielded) != SR_YIELD_DUE))
		return;
	slice = LOOSE(&cq->slice);
	if (slice)
		used = process_ns();
	start = sr_now_ns();
	sched_yield();
	away = sr_now_ns() - start;
	if (slice)
		used = process_ns() - used;
	slice = away > YIELD_SLICE_NS;
	SET_LOOSE(&cq->slice, slice);
	if (slice && used > away / 2) {
		SET_LOOSE(&cq->spins, SPINS_OF_SIBLINGS);
		SET_LOOSE(&cq->yielded, SR_YIELD_SIBLINGS);
		return;
	}
	SET_LOOSE(&cq->yielded, away < YIELD_ALONE_NS ? SR_YIELD_ALONE : SR_YIELD_SHARED);
}
