/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slow side of the robust lock. A waiter spins a little, then sleeps on the word for at most a few
 * milliseconds at a time, so a holder that dies without waking anybody is found out by the next look, never waited
 * for.
 */
#include "softrdma/rlock.h"

#include "base/sys.h"
#include "softrdma/device.h"

#define SPINS 100
#define SLEEP_NS 5000000

static int try_take(struct rlock *l, uint32_t word)
{
	uint32_t expected = 0;

	return atomic_compare_exchange_strong_explicit(&l->word, &expected, word, memory_order_acquire,
						       memory_order_relaxed);
}

int rlock_slow(struct sr_context *ctx, struct rlock *l, uint32_t token)
{
	const struct timespec nap = { .tv_nsec = SLEEP_NS };
	uint32_t seen;
	int i;

	for (i = 0; i < SPINS; i++) {
		if (!atomic_load_explicit(&l->word, memory_order_relaxed) && try_take(l, token))
			return 0;
		arch_cpu_relax();
	}
	/* From here on we may not be the only sleeper: the word keeps the waiters' bit, a release wakes too many. */
	for (;;) {
		seen = atomic_load(&l->word);
		if (!seen) {
			if (try_take(l, token | RLOCK_WAITERS))
				return 0;
			continue;
		}
		if (!(seen & RLOCK_WAITERS) &&
		    !atomic_compare_exchange_strong(&l->word, &seen, seen | RLOCK_WAITERS))
			continue;
		seen |= RLOCK_WAITERS;
		if (raw_futex((uint32_t *)&l->word, FUTEX_WAIT, seen, &nap, 0) != -ETIMEDOUT)
			continue;
		if (sr_token_alive(ctx, seen & ~RLOCK_WAITERS))
			continue;
		if (atomic_compare_exchange_strong(&l->word, &seen, token | RLOCK_WAITERS))
			return 1;
	}
}

void rlock_wake(struct rlock *l)
{
	raw_futex((uint32_t *)&l->word, FUTEX_WAKE, 1, NULL, 0);
}
