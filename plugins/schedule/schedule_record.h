/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the image holds of how threads are scheduled: those that have set something themselves (base/begun.h). Little-endian.
 *
 *   struct schedule_record
 *   struct schedule_thread, the set of its processors	as often as there are some
 */
#pragma once

#include <stdint.h>

#define SCHEDULE_RECORD_VERSION 1

struct schedule_record {
	uint32_t version;
	uint32_t reserved;
};

enum {
	SCHEDULE_CPUS = 1,
	SCHEDULE_CLASS = 2, /* policy, priority, and what belongs to these */
	SCHEDULE_NICE = 4,
	SCHEDULE_IO = 8,
};

struct schedule_thread {
	uint32_t tid, flags;
	uint32_t policy; /* SCHED_* */
	int32_t nice;
	uint32_t priority;
	uint32_t reset_on_fork;
	uint64_t runtime, deadline, period; /* SCHED_DEADLINE */
	uint32_t cpus_length; /* bytes of the set, which follow: a multiple of 8; bit N of byte N / 8 */
	uint32_t io; /* priority, as ioprio_set(2) takes it */
};
_Static_assert(sizeof(struct schedule_record) == 8, "schedule_record");
_Static_assert(sizeof(struct schedule_thread) == 56, "schedule_record");
