/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interval timers (setitimer, alarm). One that fires between the taking of the signals that wait (pending_record) and its being read would be recorded as fired, and its signal not: lost at a restart.
 * So all are read, and their signals looked for again, until none has come in between. They fire at our expense, too: the checkpoint thread's time is the process's.
 */
#include <signal.h>

#include "agent/agent.h"

#define LOOKS_MAX 1000 /* one that fires more often than it can be looked at */

static const int signals[] = { SIGALRM, SIGVTALRM, SIGPROF };

static void read_all(struct image_timer t[3])
{
	for (int which = 0; which < (int)ARRAY_SIZE(signals); which++) {
		struct { long isec, iusec, vsec, vusec; } it = { 0 };

		RAW2(SYS_getitimer, which, &it);
		t[which].interval_us = (uint64_t)it.isec * 1000000u + (uint64_t)it.iusec;
		t[which].value_us = (uint64_t)it.vsec * 1000000u + (uint64_t)it.vusec;
		if (!t[which].value_us) /* its signal is pending, and the kernel arms it again when that is taken */
			t[which].value_us = t[which].interval_us;
	}
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
