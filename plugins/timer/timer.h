/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this plugin share. All return 0 or -errno, told by fermata_fail, unless said otherwise. */
#pragma once

#include "fermata/plugin.h"
#include "plugins/timer/timer_record.h"

struct timer {
	struct timer_entry entry;
	uint64_t moment; /* of the next expiration, on its clock, whatever entry.flags; 0: none */
	uint32_t still, reserved; /* it is disarmed, and what it sends is counted already */
};

/* What the kernel lists of this process' timers, ascending: fermata_alloc memory, or NULL for none. */
int timer_list(struct timer **ret, uint32_t *ret_count);

int timer_is_realtime(int32_t clock);
int timer_is_cpu(int32_t clock); /* of a process or a thread */
uint64_t timer_now_ns(int32_t clock);
uint64_t timer_to_ns(const struct timespec *t);

/* Sets timer @e->id so that @e->ticks expirations wait before the one at @moment. Answers as the kernel. */
int timer_arm(const struct timer_entry *e, uint64_t moment);
int timer_disarm(const struct timer_entry *e);
int timer_restore(const struct timer_entry *entries, uint32_t count);
