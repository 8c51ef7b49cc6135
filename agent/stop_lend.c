/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where stopped threads sleep, and how one lends itself: it runs a function for the checkpoint thread (or the watch thread), and sleeps again. Any of them, or one by its
 * id, for what only that thread can do: take its own signals. Where no address of a function may be on the stack of a program's handler for
 * long, as its signal stack may be small: what runs there is small.
 *
 * Owns the loan under way (there is one at a time: @lock; the checkpoint thread runs before the loan that has made it is answered to the watch thread), and the turn: the futex of the sleepers, which counts what they have to look at. Who waits reads the turn, then looks, then sleeps on what he has
 * read; whoever changes something changes the turn after that, then wakes. So nobody sleeps over a change that came after his look, and no two changes look alike.
 *
 * A loan's ticket says for whom it is, and who takes it runs it. It has a number: a thread that has read one and is held up finds another there when it goes on, and may not
 * run what is asked of somebody else: signals that were to be put back by their own thread would be lost.
 */
#include "agent/stop_lend.h"

#include <linux/futex.h>

#include "base/fault.h"
#include "base/lock.h"
#include "base/macro.h"
#include "base/sys.h"

#define LENT_PENDING 1
#define HELD_UP_NS 400000000u

static struct {
	struct lock lock; /* of those who ask for loans */
	int (*fn)(void *);
	void *arg;
	uint32_t number;
	_Atomic uint64_t ticket; /* number << 32 | tid (0: any) of a loan that waits; 0: none does */
	_Atomic int32_t lent;	 /* LENT_PENDING, or what @fn has answered */
	int hold_up;		 /* for a test */
} loan;

static _Atomic uint32_t turn;

/* For a test: as if others had the processor for a while. */
static void hold_up(void)
{
	for (uint64_t until = raw_now_ns() + HELD_UP_NS; raw_now_ns() < until;)
		RAW0(SYS_sched_yield);
}

/* Whether there was one, which this thread or another has taken. */
static bool serve(void)
{
	uint64_t ticket = atomic_load(&loan.ticket);
	uint32_t tid = (uint32_t)ticket;

	if (!ticket || (tid && tid != (uint32_t)raw_gettid()))
		return false;
	if (!atomic_compare_exchange_strong(&loan.ticket, &ticket, 0))
		return true;
	loan.hold_up = fault_point(FAULT_AGENT_LENT);
	atomic_store(&loan.lent, loan.fn(loan.arg));
	if (unlikely(loan.hold_up))
		hold_up();
	raw_futex((uint32_t *)&loan.lent, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	return true;
}

void lend_wait(const _Atomic uint32_t *word, uint32_t value)
{
	uint32_t seen;

	while (seen = atomic_load(&turn), atomic_load(word) == value)
		if (!serve())
			raw_futex((uint32_t *)&turn, FUTEX_WAIT_PRIVATE, seen, NULL, 0);
}

static void wake(uint32_t how_many)
{
	atomic_fetch_add(&turn, 1);
	raw_futex((uint32_t *)&turn, FUTEX_WAKE_PRIVATE, how_many, NULL, 0);
}

void lend_end(_Atomic uint32_t *word)
{
	atomic_store(word, 0);
	wake(INT32_MAX);
}

int lend_run(int tid, int (*fn)(void *), void *arg)
{
	int r;

	lock_acquire(&loan.lock);
	loan.fn = fn;
	loan.arg = arg;
	loan.number = loan.number < UINT32_MAX ? loan.number + 1 : 1;
	atomic_store(&loan.lent, LENT_PENDING);
	atomic_store(&loan.ticket, (uint64_t)loan.number << 32 | (uint32_t)tid);
	wake(tid ? INT32_MAX : 1);
	while (atomic_load(&loan.lent) == LENT_PENDING)
		raw_futex((uint32_t *)&loan.lent, FUTEX_WAIT_PRIVATE, LENT_PENDING, NULL, 0);
	r = atomic_load(&loan.lent);
	if (unlikely(loan.hold_up))
		hold_up();
	lock_release(&loan.lock);
	return r;
}
