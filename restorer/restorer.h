/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The restorer's one state, in the hole (image/plan.h draws it). The program has no writable data of its own and no relocations, so
 * that its copy in the hole runs as it is: no static variables, no tables of pointers.
 */
#pragma once

#include <stdint.h>

#include "base/macro.h"
#include "base/sys.h"
#include "image/plan.h"

struct restorer {
	const struct plan *plan;
	struct plan_turns *turns; /* whose turn it is to get its id; NULL in a capsule */
	const struct plan_mapping *mappings;
	const struct plan_segment *segments;
	const struct plan_patch *patches;
	const struct plan_block *blocks;
	const struct plan_load *loads;
	const struct image_thread *threads;
	const struct image_sigaction *signals;
	uint64_t vdso_now; /* where the kernel put [vdso] at exec */
	uint64_t park;	   /* the hole's place for vvar and vdso */
	uint64_t stacks;   /* of PLAN_HOLE_STACK bytes each; the first is the leader's */
	int plan_fd, image_fd;
	uint32_t pid;
	uint32_t next_block[2]; /* of the dense ones, of the others; taken by the helpers, atomically */
	uint32_t dense_done;	/* helpers that are through with the former */
	uint32_t sparse;	/* 1: on with the others; futex, as the one above */
	uint32_t helpers[PLAN_EAGER_MAX]; /* the kernel zeroes a word when its helper has gone */
	uint32_t stranger;  /* a thread with another id than the wanted one; the kernel zeroes it when it has gone */
	uint32_t ready;	    /* threads that are made and wait; futex */
	uint32_t policy_told; /* that a thread's memory policy is not to be had */
	uint32_t speculation_told; /* that a choice against speculation is not */
	uint32_t hold;	    /* 1 until they may jump; futex, not private: the kernel may be the one who wakes */
};
_Static_assert(sizeof(struct restorer) <= 4096, "one page of the hole");

/* One sentence to the plan's log_fd, then the process ends with status 5. @at is an address or a number, shown if not 0. */
_Noreturn void fail(const struct restorer *r, const char *step, uint64_t at, long err);
void warn(const struct restorer *r, const char *step, uint64_t at, long err);
_Noreturn void damaged(const struct restorer *r, const char *step, uint64_t at, long err); /* fail(), for the image's sake */

static inline uint64_t stack_top(const struct restorer *r, uint32_t index)
{
	return r->stacks + (uint64_t)(index + 1) * PLAN_HOLE_STACK;
}

static inline void wake_all(uint32_t *word)
{
	raw_futex(word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, 0);
}

void threads_place_memory(struct restorer *r); /* the pages that are to be read in come from where the program's first thread would have them */
void memory_clear(struct restorer *r);
void memory_map(struct restorer *r);
void memory_load(struct restorer *r); /* and checks it */
void memory_await_others(struct restorer *r); /* until the memory of all processes is in and whole */
void memory_finish(struct restorer *r);
int memory_has_loads(const struct restorer *r, const struct plan_mapping *m);

void segments_attach(struct restorer *r);
void segments_detach(struct restorer *r); /* the transient ones */
void segments_finish(struct restorer *r);

void process_restore(struct restorer *r);
void process_start_timers(struct restorer *r);

_Noreturn void threads_restore(struct restorer *r);
