/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * POSIX timers: timer_create, with all that libc builds on it (SIGEV_THREAD is a signal to a thread of libc's that keeps the kernel's number of the timer).
 * The kernel lists them in /proc/self/timers, timer_gettime has their time. A timer is kept as the moment of its next expiration, as timerfd
 * (plugins/event/event_timerfd.c); one of a processor's time as the time left. A relative one of the realtime clock is kept as a moment of CLOCK_MONOTONIC, with which it goes: what has been set to
 * end before a sleep ends does so after a restart, too.
 *
 * A signal that waits is taken out by the agent and told to us: so many expirations nobody has seen. Taking it out made the kernel set an interval
 * timer again. To make it wait again the timer is set into the past, by as many intervals: the kernel then sends the one signal that a timer may have waiting,
 * and counts the overrun up to when it is taken. That is done at a restart, and after a checkpoint, too. Then one that it has sent since its time was read must be gone: before Linux 6.13
 * it would be one more. What is taken out for that may be another timer's, which is then set as well.
 *
 * A timer may fire after its signal was looked for and before its time is read. So it is read, and its signal looked for again, until no
 * signal has come in between.
 *
 * Not kept: what timer_getoverrun says of a signal that was delivered before.
 *
 * Owns the list of timers, from QUIESCE, where the program's threads stand already, to RESUME.
 */
#include "plugins/timer/timer.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"

#define LOOKS_MAX 1000 /* a timer that fires more often than it can be looked at */
#define MOMENT_NS 50000u /* the time left and the clock, read within this time, are of one moment */
#define MOMENT_LOOKS 100

static struct timer *timers;
static uint32_t count;

static void forget(void)
{
	fermata_free(timers);
	timers = NULL;
	count = 0;
}

static int quiesce(void)
{
	forget();
	return timer_list(&timers, &count);
}

static uint32_t kind_of(const struct timer_entry *e)
{
	if (timer_is_cpu(e->clock))
		return TIMER_LEFT;
	return timer_is_realtime(e->clock) && !fermata_timer_is_absolute(e->id) ? TIMER_MONOTONIC : 0;
}

/*
 * What is left, and what its clock and CLOCK_MONOTONIC say at that moment: a thread that stands between the two reads for a while makes a timer late. Of several looks that
 * which took the least time counts.
 */
static int read_moment(const struct timer_entry *e, struct itimerspec *left, uint64_t *ret_now, uint64_t *ret_monotonic)
{
	uint64_t best = UINT64_MAX, begin, now, took;
	struct itimerspec seen;
	int r, looks = 0;

	do {
		begin = raw_now_ns();
		r = (int)RAW2(SYS_timer_gettime, e->id, &seen);
		now = timer_now_ns(e->clock);
		took = raw_now_ns() - begin;
		if (took < best) {
			best = took;
			*left = seen;
			*ret_now = now;
			*ret_monotonic = begin;
		}
	} while (!r && best > MOMENT_NS && ++looks < MOMENT_LOOKS);
	return r;
}

static int read_time(struct timer *t)
{
	struct timer_entry *e = &t->entry;
	struct itimerspec left;
	uint64_t now = 0, monotonic = 0;
	int r = read_moment(e, &left, &now, &monotonic);

	if (r)
		return fermata_fail(r, "timer %d cannot be read (errno %d)", e->id, -r);
	e->expiry_ns = timer_to_ns(&left.it_value);
	e->interval_ns = timer_to_ns(&left.it_interval);
	e->flags = (e->flags & TIMER_THREAD) | kind_of(e);
	t->moment = e->expiry_ns ? e->expiry_ns + now : 0;
	if (e->expiry_ns && e->flags & TIMER_MONOTONIC)
		e->expiry_ns += monotonic;
	else if (!(e->flags & TIMER_LEFT))
		e->expiry_ns = t->moment;
	return 0;
}

static int signal_claim(const siginfo_t *info)
{
	uint32_t low = 0, high = count;

	if (info->si_code != SI_TIMER)
		return 0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (timers[middle].entry.id == info->si_timerid) {
			if (timers[middle].still)
				return 1;
			timers[middle].entry.ticks += 1 + (uint64_t)info->si_overrun;
			read_time(&timers[middle]);
			return 1;
		}
		if (timers[middle].entry.id < info->si_timerid)
			low = middle + 1;
		else
			high = middle;
	}
	return 0; /* deleted meanwhile: its signal alone is left */
}

static int take(const struct timer_entry *e)
{
	return e->notify == SIGEV_NONE ? 0 : fermata_signals_take(e->flags & TIMER_THREAD ? (int)e->tid : 0, (int)e->signal);
}

static int look(struct timer *t)
{
	struct timer_entry *e = &t->entry;
	uint64_t seen;
	int r, looks = 0;

	do {
		seen = e->ticks;
		r = read_time(t);
		if (!r)
			r = take(e);
	} while (!r && e->ticks != seen && ++looks < LOOKS_MAX);
	return r;
}

static int dump(struct fermata_sink *sink)
{
	struct timer_record head = { TIMER_RECORD_VERSION, count };
	int r = 0;

	for (uint32_t i = 0; i < count && !r; i++)
		r = look(&timers[i]);
	if (!r)
		r = fermata_sink_write(sink, &head, sizeof(head));
	for (uint32_t i = 0; i < count && !r; i++)
		r = fermata_sink_write(sink, &timers[i].entry, sizeof(timers[i].entry));
	return r;
}

static int make_still(void)
{
	int found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct timer *t = &timers[i];

		if (!t->entry.ticks || t->still)
			continue;
		found = t->still = 1;
		timer_disarm(&t->entry);
		take(&t->entry);
	}
	return found;
}

/* What has expired since its time was read the kernel counts, too: the moment is the old one. */
static void resume(void)
{
	while (make_still())
		;
	for (uint32_t i = 0; i < count; i++)
		if (timers[i].still)
			timer_arm(&timers[i].entry, timers[i].moment);
	forget();
}

static int recreate(const void *record, size_t len)
{
	const struct timer_record *head = record;

	if (len < sizeof(*head) || head->version != TIMER_RECORD_VERSION ||
	    (len - sizeof(*head)) / sizeof(struct timer_entry) < head->count)
		return fermata_fail(-EBADMSG, "the record of the timers is damaged or of another version");
	return timer_restore((const struct timer_entry *)(head + 1), head->count);
}

static void restarted(void)
{
	forget();
}

extern const struct fermata_plugin plugin_timer;
const struct fermata_plugin plugin_timer = {
	.api = FERMATA_PLUGIN_API,
	.name = "timer",
	.quiesce = quiesce,
	.signal_claim = signal_claim,
	.dump = dump,
	.resume = resume,
	.recreate = recreate,
	.restarted = restarted,
};
