/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stopped thread lends itself: it runs a function for the checkpoint thread (or the watch thread), and sleeps again. Any of them, or one by its
 * id, for what only that thread can do: take its own signals. Where no address of a function may be on the stack of a program's handler for
 * long, as its signal stack may be small: what runs there is small.
 *
 * Owns the loan under way; there is one at a time. The bit LEND of stop.c's word says that there is one, its ticket for whom. Who takes the ticket runs it.
 * A ticket has a number: a thread that has read one and is held up finds another there when it goes on, be it by the same bit, and may not
 * run what is asked of somebody else: signals that were to be put back by their own thread would be lost.
 */
#include "agent/agent.h"

#include "agent/stop_lend.h"

#define LENT_PENDING 1

static struct {
	int (*fn)(void *);
	void *arg;
	uint32_t number;
	_Atomic uint64_t ticket; /* number << 32 | tid (0: any) of a loan that waits; 0: none does */
	_Atomic int32_t lent;	 /* LENT_PENDING, or what @fn has answered */
} loan;

bool lend_serve(_Atomic uint32_t *word, uint32_t seen)
{
	uint64_t ticket = seen & LEND ? atomic_load(&loan.ticket) : 0;
	uint32_t tid = (uint32_t)ticket;

	if (!ticket || (tid && tid != (uint32_t)raw_gettid()))
		return false;
	if (!atomic_compare_exchange_strong(&loan.ticket, &ticket, 0))
		return true;
	atomic_fetch_and(word, ~LEND);
	atomic_store(&loan.lent, loan.fn(loan.arg));
	raw_futex((uint32_t *)&loan.lent, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	return true;
}

int lend_run(_Atomic uint32_t *word, int tid, int (*fn)(void *), void *arg)
{
	loan.fn = fn;
	loan.arg = arg;
	loan.number = loan.number < UINT32_MAX ? loan.number + 1 : 1;
	atomic_store(&loan.lent, LENT_PENDING);
	atomic_store(&loan.ticket, (uint64_t)loan.number << 32 | (uint32_t)tid);
	atomic_fetch_or(word, LEND);
	raw_futex((uint32_t *)word, FUTEX_WAKE_PRIVATE, tid ? INT32_MAX : 1, NULL, 0);
	while (atomic_load(&loan.lent) == LENT_PENDING)
		raw_futex((uint32_t *)&loan.lent, FUTEX_WAIT_PRIVATE, LENT_PENDING, NULL, 0);
	return atomic_load(&loan.lent);
}
