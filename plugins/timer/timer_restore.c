/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clocks, and timers made again with their old numbers. Linux 6.15 can be asked for a number (PR_TIMER_CREATE_RESTORE_IDS); an older one counts up from 0 in each new
 * process, so timers are made and deleted until the number comes. No state.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "plugins/timer/timer.h"

#ifndef PR_TIMER_CREATE_RESTORE_IDS
#define PR_TIMER_CREATE_RESTORE_IDS 77
#endif
#define TRIES_MAX 4000000 /* a second or a few */

int timer_is_realtime(int32_t clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI;
}

int timer_is_cpu(int32_t clock)
{
	return clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
}

static int32_t without_alarm(int32_t clock)
{
	return clock == CLOCK_REALTIME_ALARM ? CLOCK_REALTIME : clock == CLOCK_BOOTTIME_ALARM ? CLOCK_BOOTTIME : clock;
}

uint64_t timer_to_ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

uint64_t timer_now_ns(int32_t clock)
{
	struct timespec t = { 0 };

	raw_clock_gettime(without_alarm(clock), &t);
	return timer_to_ns(&t);
}

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

static int set(const struct timer_entry *e, int flags, uint64_t expiry)
{
	struct itimerspec s = { .it_value = to_timespec(expiry), .it_interval = to_timespec(e->interval_ns) };
	int r = (int)RAW4(SYS_timer_settime, e->id, flags, &s, NULL);

	return r ? fermata_fail(r, "timer %d cannot be set (errno %d)", e->id, -r) : 0;
}

int timer_disarm(const struct timer_entry *e)
{
	struct timer_entry once = *e;

	once.interval_ns = 0;
	return set(&once, 0, 0);
}

int timer_arm(const struct timer_entry *e, uint64_t moment)
{
	uint64_t before = e->ticks * e->interval_ns;

	if (!moment && !e->ticks)
		return 0;
	return set(e, TIMER_ABSTIME, moment > before ? moment - before : 1);
}

/* One that would have expired by now has: it is set into the past. Else it is relative again, and goes on when the realtime clock is set. */
static int arm_monotonic(const struct timer_entry *e)
{
	uint64_t now = raw_now_ns();

	if (!e->ticks && e->expiry_ns > now)
		return set(e, 0, e->expiry_ns - now);
	return timer_arm(e, timer_now_ns(e->clock) + e->expiry_ns - now);
}

static int arm_again(const struct timer_entry *e)
{
	uint64_t expiry = e->expiry_ns;

	if (expiry && e->flags & TIMER_MONOTONIC)
		return arm_monotonic(e);
	if (!(e->flags & TIMER_LEFT) || !expiry)
		return timer_arm(e, expiry);
	if (!e->ticks)
		return set(e, 0, expiry);
	return timer_arm(e, timer_now_ns(e->clock) + expiry);
}

/* The number that it has got, or -errno. */
static int create(const struct timer_entry *e, int want)
{
	struct sigevent event;
	int id = want, r;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = (int)(e->notify | (e->flags & TIMER_THREAD ? SIGEV_THREAD_ID : 0));
	event.sigev_signo = (int)e->signal;
	event.sigev_value.sival_ptr = (void *)e->value;
	event._sigev_un._tid = (int)e->tid;
	r = (int)RAW3(SYS_timer_create, e->clock, &event, &id);
	if (r == -EPERM && without_alarm(e->clock) != e->clock) {
		log_warn("timer %d does not wake this host up from sleep: that takes CAP_WAKE_ALARM", e->id);
		r = (int)RAW3(SYS_timer_create, without_alarm(e->clock), &event, &id);
	}
	if (r == -EINVAL && e->flags & TIMER_THREAD) { /* the thread has ended, and it tells nobody any more */
		event.sigev_notify = SIGEV_NONE;
		r = (int)RAW3(SYS_timer_create, e->clock, &event, &id);
	}
	return r ? r : id;
}

static int create_counting(const struct timer_entry *e)
{
	int id = -EBUSY;

	for (int i = 0; i < TRIES_MAX; i++) {
		id = create(e, 0);
		if (id < 0 || id == e->id)
			return id;
		RAW1(SYS_timer_delete, id);
		if (id > e->id)
			return -EEXIST;
	}
	return -E2BIG;
}

static int make(const struct timer_entry *e, int asked)
{
	int id = asked ? create(e, e->id) : create_counting(e);

	if (id == e->id)
		return 0;
	if (id == -E2BIG)
		return fermata_fail(id, "timer %d cannot get its number again: this kernel counts up to it, and that takes too long (Linux 6.15 "
				    "gives it at once)", e->id);
	return fermata_fail(id < 0 ? id : -EEXIST, "timer %d of clock %d cannot be made (errno %d)", e->id, e->clock, id < 0 ? -id : EEXIST);
}

int timer_restore(const struct timer_entry *entries, uint32_t count)
{
	int asked, r = 0;

	if (!count)
		return 0;
	asked = !fault_point(FAULT_TIMER_IDS_ASKED) && !RAW5(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0);
	for (uint32_t i = 0; i < count && !r; i++)
		r = make(&entries[i], asked);
	if (asked)
		RAW5(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0);
	for (uint32_t i = 0; i < count && !r; i++)
		r = arm_again(&entries[i]);
	return r;
}
