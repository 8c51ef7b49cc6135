/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting calls that open signals for their time, made on behalf of a thread that stands behind another call, and that goes on there with what they answer: agent/call_masked.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Lies on the program's stack, and the stack pointer is its address. masked.S knows where the first six are. */
struct arch_masked {
	uint64_t pc, sp;	/* where the program goes on */
	int64_t args[6];	/* of its call */
	uint64_t mask;		/* of its signals */
	struct timespec left;	/* the kernel keeps it; the answer, then */
	struct timespec *rest;	/* where that goes if a handler has ended the call, or NULL */
	uint64_t deadline_ns;	/* CLOCK_MONOTONIC; 0: none */
	uint64_t set[2];	/* address and size of @mask, for pselect6 */
};
_Static_assert(offsetof(struct arch_masked, sp) == 8 && offsetof(struct arch_masked, args) == 16 && offsetof(struct arch_masked, mask) == 64 &&
	       offsetof(struct arch_masked, left) == 72 && offsetof(struct arch_masked, rest) == 88, "masked.S");

#define ARCH_MASKED_WAIT_SIZE 7 /* bytes of each of the three below, up to where the answer is there */
extern const char arch_masked_begins[], arch_masked_ends[];
extern const char arch_masked_ppoll[], arch_masked_epoll_pwait[], arch_masked_pselect6[];
