/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of a process' timers (timer_create): a head, then one entry a timer, by ascending id. Little-endian. */
#pragma once

#include <stdint.h>

#define TIMER_RECORD_VERSION 2

struct timer_record {
	uint32_t version;
	uint32_t count; /* of struct timer_entry, which follow */
};
_Static_assert(sizeof(struct timer_record) == 8, "timer_record");

enum {
	TIMER_LEFT = 1,	     /* of a processor's time: expiry_ns is the time that was left, not a moment */
	TIMER_THREAD = 2,    /* notifies thread tid (SIGEV_THREAD_ID) */
	TIMER_MONOTONIC = 4, /* relative, of the realtime clock, which counts as CLOCK_MONOTONIC does: expiry_ns is a moment of that */
};

struct timer_entry {
	int32_t id;	   /* the kernel's number */
	int32_t clock;	   /* clockid_t as the kernel knows it */
	uint32_t notify;   /* SIGEV_SIGNAL, _NONE or _THREAD */
	uint32_t signal;
	uint32_t tid;
	uint32_t flags;
	uint64_t value;	   /* sigev_value */
	uint64_t expiry_ns; /* next one, on its clock (but see enum); 0: none */
	uint64_t interval_ns; /* 0: fires once */
	uint64_t ticks;	   /* expirations whose signal waits */
};
_Static_assert(sizeof(struct timer_entry) == 56, "timer_entry");
