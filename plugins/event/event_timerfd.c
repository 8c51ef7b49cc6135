/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timerfd. Monotonic clocks go on where they were, so a timer of theirs is kept as the moment of its next expiration; so is an absolute one
 * of the realtime clock, which has gone on: it may have expired meanwhile. A relative one of the realtime clock
 * goes with CLOCK_MONOTONIC, and is kept as a moment of that.
 *
 * Expirations that nobody has read: a periodic timer that is set to begin N intervals before its next expiration has expired N times. A
 * timer that fires once has 0 or 1; one that has fired is set to a moment long past.
 *
 * A timer that is due, but whose interrupt has not come yet, looks like one that is not set: nothing left, nothing expired. (Seen in 7 of 100,000 looks at the
 * moment, for up to 0.13 ms.) So one that looks like that is looked at again for a while.
 *
 * What is left, what the clock says and the number of expirations are three reads, and have to be of one moment: a checkpoint thread that stands between
 * them for longer than an interval would save an expiration too many, or too few. So it looks until none can have come meanwhile; where that is never so (an
 * interval that is too short, an emulated processor), the look that took the least time counts. No state.
 */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/event/event.h"

#define DUE_NS 1000000u /* a timer's interrupt is late by so much at most */
#define MOMENT_NS 50000u /* what is read within this time is read at one moment */
#define LOOKS 100

static int is_realtime(uint32_t clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM;
}

static uint64_t now_ns(uint32_t clock)
{
	struct timespec t = { 0 };

	raw_clock_gettime(is_realtime(clock) ? CLOCK_REALTIME : clock == CLOCK_BOOTTIME_ALARM ? CLOCK_BOOTTIME : (clockid_t)clock,
			  &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t to_ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

/* Of the realtime clock, and goes with CLOCK_MONOTONIC. */
static int is_relative(const struct event_timerfd *t)
{
	return is_realtime(t->clock) && !(t->flags & TFD_TIMER_ABSTIME);
}

/* After timerfd_gettime(2), which counts the expirations up to now. */
static int read_fdinfo(const struct fermata_desc *d, struct event_timerfd *t)
{
	const char *clock, *ticks, *flags;
	char *text;
	int r = event_fdinfo(d->fd, &text);

	if (r)
		return r;
	clock = event_field(text, "clockid:");
	ticks = event_field(text, "ticks:");
	flags = event_field(text, "settime flags:");
	if (clock && ticks && flags) {
		t->clock = (uint32_t)event_number(clock, 10);
		t->ticks = event_number(ticks, 10);
		t->flags = (uint32_t)event_number(flags, 8);
	} else {
		r = fermata_fail(-EOPNOTSUPP, "fd %d: the kernel does not tell what a timerfd is set to", d->fd);
	}
	fermata_free(text);
	return r;
}

struct look {
	struct event_timerfd timer;
	uint64_t left_ns, now_ns, monotonic_ns; /* now_ns: what its clock says */
	uint64_t took_ns; /* between these two */
	int is_whole; /* no expiration can have come before the last read */
};

static int look_at(const struct fermata_desc *d, struct look *l)
{
	uint64_t begin = raw_now_ns();
	struct itimerspec set;
	int r = (int)RAW2(SYS_timerfd_gettime, d->fd, &set);

	if (r)
		return fermata_fail(r, "fd %d: its timer cannot be read (errno %d)", d->fd, -r);
	l->now_ns = now_ns(l->timer.clock);
	l->took_ns = raw_now_ns() - begin;
	r = read_fdinfo(d, &l->timer);
	l->left_ns = to_ns(&set.it_value);
	l->monotonic_ns = begin;
	l->timer.interval_ns = to_ns(&set.it_interval);
	l->is_whole = !l->left_ns || !l->timer.interval_ns || raw_now_ns() - begin < l->left_ns;
	return r;
}

/* One that looks as if it were not set may be due; a periodic one whose expirations are seen certainly is. */
static int is_settled(const struct look *l, uint64_t waited_ns)
{
	if (l->left_ns)
		return l->is_whole && l->took_ns <= MOMENT_NS;
	return l->timer.ticks ? !l->timer.interval_ns : waited_ns >= DUE_NS;
}

/* Of one that has become due in between, or is so no more, the last look says most. */
static int is_better(const struct look *l, const struct look *best)
{
	if (!l->left_ns || !best->left_ns)
		return 1;
	return l->is_whole != best->is_whole ? l->is_whole : l->took_ns < best->took_ns;
}

static int read_settled(const struct fermata_desc *d, struct look *best)
{
	uint64_t begin = raw_now_ns(), waited;
	struct look l = { .timer = best->timer };
	int r = read_fdinfo(d, &l.timer), looks = 0; /* whose clock it is */

	if (r)
		return r;
	do {
		r = look_at(d, &l);
		if (r)
			return r;
		waited = raw_now_ns() - begin;
		if (is_better(&l, best))
			*best = l;
	} while (!is_settled(best, waited) && (++looks < LOOKS || waited < DUE_NS));
	return 0;
}

int event_timerfd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct look l = { .timer.head = { EVENT_RECORD_VERSION, EVENT_TIMERFD } };
	struct event_timerfd *t = &l.timer;
	int r = read_settled(d, &l);

	if (r)
		return r;
	t->expiry_ns = l.left_ns;
	if (!l.left_ns && t->interval_ns && t->ticks) /* due, after others that nobody has read */
		t->expiry_ns = 1;
	if (t->expiry_ns)
		t->expiry_ns += is_relative(t) ? l.monotonic_ns : l.now_ns;
	return fermata_sink_write(sink, t, sizeof(*t));
}

/* Waking a machine up takes a capability that the user of this host may not have. */
static int create(const struct fermata_desc *d, uint32_t clock)
{
	int fd = (int)RAW2(SYS_timerfd_create, clock, TFD_CLOEXEC);

	if (fd != -EPERM)
		return fd;
	log_warn("fd %d: its timer does not wake this host up from sleep: that takes CAP_WAKE_ALARM", d->fd);
	return (int)RAW2(SYS_timerfd_create, is_realtime(clock) ? CLOCK_REALTIME : CLOCK_BOOTTIME, TFD_CLOEXEC);
}

/* Only one that is set to a moment can have expired several times: of an interval, and unread. As it is the kernel's from then on, it is one of the realtime clock. */
static int stays_relative(const struct event_timerfd *t, uint64_t now)
{
	return is_relative(t) && !(t->interval_ns && (t->ticks || (t->expiry_ns && t->expiry_ns <= now)));
}

/* The flags to set it with. */
static int settings(const struct event_timerfd *t, struct itimerspec *ret)
{
	uint64_t expiry = t->expiry_ns, before = t->ticks * t->interval_ns, now = raw_now_ns();
	int relative = stays_relative(t, now);

	if (expiry && is_relative(t) && !relative)
		expiry += now_ns(t->clock) - now;
	else if (relative)
		before += now;
	if (expiry)
		expiry = expiry > before ? expiry - before : 1;
	else if (t->ticks)
		expiry = 1;
	ret->it_value = to_timespec(expiry);
	ret->it_interval = to_timespec(t->interval_ns);
	if (relative)
		return 0;
	return TFD_TIMER_ABSTIME | (is_realtime(t->clock) && t->flags & TFD_TIMER_ABSTIME ? (int)t->flags & TFD_TIMER_CANCEL_ON_SET : 0);
}

int event_timerfd_restore(struct fermata_desc *d, const struct event_timerfd *t)
{
	int fd = create(d, t->clock), flags, r;
	struct itimerspec set;

	if (fd < 0)
		return fd;
	flags = settings(t, &set);
	r = (int)RAW4(SYS_timerfd_settime, fd, flags, &set, NULL);
	if (!r)
		return fd;
	raw_close(fd);
	return fermata_fail(r, "fd %d: its timer cannot be set (errno %d)", d->fd, -r);
}
