/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interval timers (setitimer, alarm). One that fires between the taking of the signals that wait (pending_record) and its being read would be recorded as fired, and its signal not: lost at a restart.
 * So all are read, and their signals looked for again, until none has come in between. They fire at our expense, too: the checkpoint thread's time is the process's.
 *
 * The real one goes with CLOCK_MONOTONIC, and so with sleeps and with other timers: in the image is what is left of it when that clock is as the image says, and the restorer takes off what has gone since.
 */
#include <signal.h>

#include "agent/agent.h"

#define LOOKS_MAX 1000 /* one that fires more often than it can be looked at */
#define MOMENT_NS 50000u
#define MOMENT_LOOKS 100

static const int signals[] = { SIGALRM, SIGVTALRM, SIGPROF };

static uint64_t read_ns; /* when the real one was, on CLOCK_MONOTONIC */

static void read_one(int which, struct image_timer *t)
{
	struct { long isec, iusec, vsec, vusec; } it = { 0 };

	RAW2(SYS_getitimer, which, &it);
	t->interval_us = (uint64_t)it.isec * 1000000u + (uint64_t)it.iusec;
	t->value_us = (uint64_t)it.vsec * 1000000u + (uint64_t)it.vusec;
	if (!t->value_us) /* its signal is pending, and the kernel arms it again when that is taken */
		t->value_us = t->interval_us;
}

static void read_all(struct image_timer t[3])
{
	int looks = 0;

	do { /* who stands between the two for a while makes it early */
		read_ns = raw_now_ns();
		read_one(0, &t[0]);
	} while (raw_now_ns() - read_ns > MOMENT_NS && ++looks < MOMENT_LOOKS);
	for (int which = 1; which < (int)ARRAY_SIZE(signals); which++)
		read_one(which, &t[which]);
}

/* 1: one has been taken. */
static int take_new(void)
{
	uint64_t pending = pending_status(0, "ShdPnd");
	int r = 0, found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(signals) && !r; i++)
		if (pending >> (signals[i] - 1) & 1) {
			r = fermata_signals_take(0, signals[i]);
			found = 1;
		}
	return r ? r : found;
}

int itimers_record(struct image_timer t[3])
{
	int r, looks = 0;

	do {
		read_all(t);
		r = take_new();
	} while (r > 0 && ++looks < LOOKS_MAX);
	return r < 0 ? r : 0;
}

void itimers_at(struct image_timer t[3], uint64_t monotonic_ns)
{
	uint64_t gone_us = (monotonic_ns - read_ns) / 1000;

	if (t[0].value_us)
		t[0].value_us = t[0].value_us > gone_us ? t[0].value_us - gone_us : 1;
}
