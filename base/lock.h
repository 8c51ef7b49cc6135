/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A futex mutex with no owner and no libc: usable between threads, and between processes when it lies in shared
 * memory (@shared in the calls). Three states after Drepper, "Futexes are tricky": 0 free, 1 held, 2 held with waiters.
 * Not for signal handlers that may interrupt a holder.
 */
#pragma once

#include <stdatomic.h>

#include "base/sys.h"

struct lock {
	_Atomic uint32_t word;
};

static inline void lock_slow(struct lock *l, uint32_t seen)
{
	if (seen != 2)
		seen = atomic_exchange_explicit(&l->word, 2, memory_order_acquire);
	while (seen) {
		raw_futex((uint32_t *)&l->word, FUTEX_WAIT, 2, NULL, 0);
		seen = atomic_exchange_explicit(&l->word, 2, memory_order_acquire);
	}
}

static inline void lock_acquire(struct lock *l)
{
	uint32_t free_word = 0;

	if (!atomic_compare_exchange_strong_explicit(&l->word, &free_word, 1, memory_order_acquire,
						     memory_order_relaxed))
		lock_slow(l, free_word);
}

static inline int lock_try(struct lock *l)
{
	uint32_t free_word = 0;

	return atomic_compare_exchange_strong_explicit(&l->word, &free_word, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void lock_release(struct lock *l)
{
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		raw_futex((uint32_t *)&l->word, FUTEX_WAKE, 1, NULL, 0);
}
