/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock in shared memory whose holder may die at any instruction. The word names the holder: 0 free, else the
 * token of the context that holds it, with bit 31 when somebody sleeps. A waiter that has slept a while asks
 * whether the holder's process lives; if not, it takes the lock over, and is told so: what the lock protects is
 * left such that the new holder can repair it.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/macro.h"

#define RLOCK_WAITERS 0x80000000u

struct sr_context;

struct rlock {
	_Atomic uint32_t word;
};

int rlock_slow(struct sr_context *ctx, struct rlock *l, uint32_t token);
void rlock_wake(struct rlock *l);

/* 1: taken over from a dead holder; 0: taken. */
static inline int rlock_acquire(struct sr_context *ctx, struct rlock *l, uint32_t token)
{
	uint32_t expected = 0;

	if (likely(atomic_compare_exchange_strong_explicit(&l->word, &expected, token, memory_order_acquire,
							   memory_order_relaxed)))
		return 0;
	return rlock_slow(ctx, l, token);
}

static inline void rlock_release(struct rlock *l)
{
	if (unlikely(atomic_exchange_explicit(&l->word, 0, memory_order_release) & RLOCK_WAITERS))
		rlock_wake(l);
}
