/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timerfds: periodic ones, read seldom, whose expirations add up to the time that has gone by on their clock, neither more nor fewer;
 * one that has fired once and is not read; one far away; a disarmed one; relative and absolute ones of the realtime clock.
 */
#include "feature.h"

#include <sys/timerfd.h>

#define MS 1000000u
#define DAY 86400u

struct periodic {
	int fd;
	clockid_t clock;
	uint64_t begin, interval, read;
};

static struct timespec span(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

static int start(clockid_t clock, int flags, uint64_t first, uint64_t interval)
{
	struct itimerspec set = { span(interval), span(first) };
	int fd = timerfd_create(clock, TFD_NONBLOCK);

	CHECK(fd >= 0 && timerfd_settime(fd, flags, &set, NULL) == 0);
	return fd;
}

static struct periodic start_periodic(clockid_t clock, uint64_t interval)
{
	struct periodic p = { .clock = clock, .begin = feature_now(clock) + interval, .interval = interval };

	p.fd = start(clock, TFD_TIMER_ABSTIME, p.begin, interval);
	return p;
}

static uint64_t ticks_of(int fd)
{
	uint64_t n;
	ssize_t r = read(fd, &n, sizeof(n));

	CHECK(r == (ssize_t)sizeof(n) || (r == -1 && errno == EAGAIN));
	return r < 0 ? 0 : n;
}

static uint64_t due(const struct periodic *p)
{
	uint64_t now = feature_now(p->clock);

	return now < p->begin ? 0 : (now - p->begin) / p->interval + 1;
}

/* The kernel may count an expiration a moment late: the softirq of the timer has to run. */
static void check_periodic(struct periodic *p)
{
	uint64_t before = due(p), after;

	p->read += ticks_of(p->fd);
	after = due(p);
	if (p->read + 1 < before || p->read > after)
		feature_fail("clock %d: %lu expirations where %lu to %lu are due", (int)p->clock, (unsigned long)p->read,
			     (unsigned long)before, (unsigned long)after);
}

static struct itimerspec left(int fd)
{
	struct itimerspec now;

	CHECK(timerfd_gettime(fd, &now) == 0);
	return now;
}

int main(void)
{
	struct periodic fast = start_periodic(CLOCK_MONOTONIC, 3 * MS), slow = start_periodic(CLOCK_BOOTTIME, 700 * MS);
	int fired = start(CLOCK_MONOTONIC, 0, 1, 0), far = start(CLOCK_MONOTONIC, 0, DAY * 1000000000ull, 0);
	int disarmed = start(CLOCK_MONOTONIC, 0, 0, 0), relative = start(CLOCK_REALTIME, 0, DAY * 1000000000ull, 5 * MS);
	int absolute = start(CLOCK_REALTIME, TFD_TIMER_ABSTIME, feature_now(CLOCK_REALTIME) + DAY * 1000000000ull, 0);
	unsigned int step = 0;
	uint64_t n;

	feature_ready();
	do {
		feature_work();
		if (++step % 16 == 0)
			check_periodic(&fast);
		check_periodic(&slow);
		CHECK(left(far).it_value.tv_sec > DAY - 1000 && left(relative).it_value.tv_sec > DAY - 1000);
		CHECK(left(absolute).it_value.tv_sec > DAY - 1000 && left(relative).it_interval.tv_nsec == 5 * MS);
		CHECK(!left(disarmed).it_value.tv_sec && !left(disarmed).it_value.tv_nsec && !left(fired).it_value.tv_nsec);
	} while (feature_step());
	CHECK(read(fired, &n, sizeof(n)) == (ssize_t)sizeof(n) && n == 1);
	CHECK(read(fired, &n, sizeof(n)) == -1 && errno == EAGAIN);
	CHECK(read(disarmed, &n, sizeof(n)) == -1 && errno == EAGAIN);
	return 0;
}
