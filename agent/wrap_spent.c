/* SPDX-License-Identifier: BSD-2-Clause */
/* Clocks of processor time and their like: after a restart what was used before it is added (spent.c). Other clocks pass. No state. */
#include <errno.h>
#include <sys/times.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define NS 1000000000ull
#define TICK_US 10000 /* of times(2) */

EXPORT int clock_gettime(clockid_t clock, struct timespec *t)
{
	uint64_t more;
	int r;

	WRAP_READY(clock_gettime);
	if (likely(clock >= 0 && clock != CLOCK_PROCESS_CPUTIME_ID && clock != CLOCK_THREAD_CPUTIME_ID))
		return real.clock_gettime(clock, t);
	fermata_enter();
	r = real.clock_gettime(clock, t);
	if (!r && (more = spent_cpu_ns(clock))) {
		more += (uint64_t)t->tv_nsec;
		t->tv_sec += (time_t)(more / NS);
		t->tv_nsec = (long)(more % NS);
	}
	fermata_leave();
	return r;
}

EXPORT clock_t clock(void)
{
	clock_t r;

	WRAP_READY(clock);
	fermata_enter();
	r = real.clock();
	if (r >= 0)
		r += (clock_t)(spent_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000);
	fermata_leave();
	return r;
}

EXPORT int getrusage(__rusage_who_t who, struct rusage *ret)
{
	int r;

	WRAP_READY(getrusage);
	fermata_enter();
	r = real.getrusage(who, ret);
	if (!r)
		spent_add(ret, (int)who);
	fermata_leave();
	return r;
}

static clock_t ticks_of(const struct timeval *t)
{
	return t->tv_sec * (1000000 / TICK_US) + t->tv_usec / TICK_US;
}

static void add_times(struct tms *t)
{
	struct rusage self = { 0 }, children = { 0 };

	spent_add(&self, RUSAGE_SELF);
	spent_add(&children, RUSAGE_CHILDREN);
	t->tms_utime += ticks_of(&self.ru_utime);
	t->tms_stime += ticks_of(&self.ru_stime);
	t->tms_cutime += ticks_of(&children.ru_utime);
	t->tms_cstime += ticks_of(&children.ru_stime);
}

/* It fails only by a bad address; any number may be its answer. */
EXPORT clock_t times(struct tms *ret)
{
	int before = errno;
	clock_t r;

	WRAP_READY(times);
	fermata_enter();
	errno = 0;
	r = real.times(ret);
	if (r != -1 || !errno) {
		errno = before;
		r += spent_ticks();
		if (ret)
			add_times(ret);
	}
	fermata_leave();
	return r;
}
