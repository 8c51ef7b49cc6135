/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel does not tell of a timer (timer_create): whether it was set to a moment or to a span, which are different times on a realtime clock that is another
 * host's after a restart; and which thread's own processor time it measures: a thread's clock is given to the kernel by the thread's id, which it
 * shows and which stays. Every timer_t is the kernel's number: those of SIGEV_THREAD are made by call_thread.c, not by libc.
 *
 * Owns a bit for each number of a timer (set: a moment), in pages of 32,768 that are made when the first bit in them is set and never given back:
 * numbers are handed out in order. These calls are async-signal-safe and stay so: no lock.
 */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/call_thread.h"
#include "agent/wrap.h"

#define PAGE_BITS (FM_PAGE_SIZE * 8)
#define PAGES (((1u << 31) + PAGE_BITS - 1) / PAGE_BITS)

typedef _Atomic uint64_t word_t;

static word_t *_Atomic pages[PAGES];
static _Atomic uint32_t used; /* pages at or beyond it have never been there: a fork looks at no others */
static _Atomic bool any;

static word_t *page_make(uint32_t at)
{
	word_t *old = NULL, *new = raw_mmap(NULL, FM_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t before = atomic_load(&used);

	if (raw_is_error(new))
		return NULL;
	while (before <= at && !atomic_compare_exchange_weak(&used, &before, at + 1))
		;
	if (atomic_compare_exchange_strong(&pages[at], &old, new))
		return new;
	raw_munmap(new, FM_PAGE_SIZE);
	return old;
}

static void note(int id, bool absolute)
{
	word_t *page = id < 0 ? NULL : atomic_load(&pages[(uint32_t)id / PAGE_BITS]);
	uint32_t at = (uint32_t)id % PAGE_BITS;

	if (!page && absolute && id >= 0)
		page = page_make((uint32_t)id / PAGE_BITS);
	if (!page)
		return;
	if (absolute)
		atomic_fetch_or(&page[at / 64], 1ull << at % 64);
	else
		atomic_fetch_and(&page[at / 64], ~(1ull << at % 64));
}

int fermata_timer_is_absolute(int id)
{
	const word_t *page = atomic_load(&pages[(uint32_t)id / PAGE_BITS]);

	return page && page[(uint32_t)id % PAGE_BITS / 64] >> (uint32_t)id % 64 & 1;
}

bool wrap_timer_any(void)
{
	return any;
}

/* In the child of a fork: it has none. */
void wrap_timer_forked(void)
{
	any = false;
	call_thread_forked();
	for (uint32_t i = 0; i < used; i++)
		if (pages[i])
			memset((void *)pages[i], 0, FM_PAGE_SIZE);
}

static clockid_t clock_for(clockid_t clock)
{
	return clock == CLOCK_THREAD_CPUTIME_ID ? THREAD_CPU_CLOCK(raw_gettid()) : clock;
}

EXPORT int timer_create(clockid_t clock, struct sigevent *event, timer_t *ret)
{
	int r;

	WRAP_READY(timer_create);
	if (!agent.active)
		return real.timer_create(clock, event, ret);
	any = true;
	if (event && event->sigev_notify == SIGEV_THREAD) {
		errno = r = call_thread_timer(clock_for(clock), event, ret);
		r = r ? -1 : 0;
	} else {
		r = real.timer_create(clock_for(clock), event, ret);
	}
	if (!r)
		note((int)(intptr_t)*ret, false);
	return r;
}

EXPORT int timer_delete(timer_t t)
{
	int r;

	WRAP_READY(timer_delete);
	r = real.timer_delete(t);
	if (!r && agent.active)
		call_thread_timer_deleted((int)(intptr_t)t);
	return r;
}

EXPORT int timer_settime(timer_t t, int flags, const struct itimerspec *set, struct itimerspec *ret_old)
{
	int r;

	WRAP_READY(timer_settime);
	if (!agent.active)
		return real.timer_settime(t, flags, set, ret_old);
	fermata_enter();
	r = real.timer_settime(t, flags, set, ret_old);
	if (!r)
		note((int)(intptr_t)t, flags & TIMER_ABSTIME);
	fermata_leave();
	return r;
}

/* SYS_timer_create and SYS_timer_settime, through libc's syscall(). */
long wrap_timer_syscall(long nr, const long *a)
{
	long r;

	fermata_enter();
	any |= nr == SYS_timer_create;
	r = real.syscall(nr, nr == SYS_timer_create ? (long)clock_for((clockid_t)a[0]) : a[0], a[1], a[2], a[3], a[4], a[5]);
	if (!r)
		note(nr == SYS_timer_create ? *(const int *)a[2] : (int)a[0], nr == SYS_timer_settime && a[1] & TIMER_ABSTIME);
	fermata_leave();
	return r;
}
