/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions: between fermata_enter and fermata_leave there is no checkpoint. A thread that is asked to stop there goes on until it leaves. They nest, and cost some instructions on a thread-local
 * word; never block inside (no wait for another thread, no blocking read).
 *
 * A signal's handler may come in the middle of one, and jump out of it for good. So the word says not only how many are open, but where the outermost was entered: the stack pointer
 * as it was before the call of the function that did. A thread that goes on at that place of its stack, or nearer to its bottom, is in that function no more: agent/region.c. Each change
 * of the word is one store, and a handler that returns leaves it as it was: wherever a jump leads out of here, the word is right.
 *
 * Regions that outlive the function which enters them are entered by fermata_enter_open.
 */
#pragma once

#include <stdint.h>

struct fermata_thread_state {
	uint64_t region;       /* FERMATA_FRAME of the outermost | how many are open; 0: none is */
	uint64_t deadline_ns;  /* of the relative time-out of the blocking call under way; 0: none (agent/) */
	int64_t cut;	       /* what a call that our last stop may have ended before its end answers; 0: there was none (agent/whole.h) */
	uint32_t pending;      /* a stop was asked for meanwhile: its slot + 1 */
	uint32_t epoch;	       /* and its epoch */
	uint32_t device_depth; /* inside the device's library */
	const long *by_number; /* what is called by syscall(2), whose code does not say it, and its arguments (agent/call_number.c); NULL: nothing */
};
extern __thread struct fermata_thread_state fermata_thread __attribute__((tls_model("initial-exec")));

/* A stack pointer @sp is a multiple of 16 before a call; where hand-written code has made it one of 8, what lies next above is meant. */
#define FERMATA_OPEN 2047ull
#define FERMATA_FRAME(sp) ((((uint64_t)(sp) + 8) >> 4) << 11)
#define FERMATA_FRAME_OF(region) ((region) >> 11 << 4) /* 0: that of one that outlives its function */

void fermata_stop_here(void); /* the slow path of leave: a stop was asked for */

static inline void fermata_enter(void)
{
	const uint64_t now = fermata_thread.region;

	fermata_thread.region = (now ? now : FERMATA_FRAME(__builtin_dwarf_cfa())) + 1;
	__asm__ volatile("" ::: "memory");
}

static inline void fermata_enter_open(void)
{
	fermata_thread.region++;
	__asm__ volatile("" ::: "memory");
}

static inline void fermata_leave(void)
{
	uint64_t now = fermata_thread.region;

	__asm__ volatile("" ::: "memory");
	now = (now & FERMATA_OPEN) > 1 ? now - 1 : 0;
	fermata_thread.region = now;
	__asm__ volatile("" ::: "memory"); /* our signal may come right here: it stops the thread, or has set pending before */
	if (__builtin_expect(fermata_thread.pending != 0, 0) && !now)
		fermata_stop_here();
}

/*
 * Device calls: descriptors and mappings made between device_enter and device_leave belong to the device: they are not saved
 * and not restored. device_enter implies enter.
 */
static inline void fermata_device_enter(void)
{
	fermata_enter();
	fermata_thread.device_depth++;
}

static inline void fermata_device_leave(void)
{
	fermata_thread.device_depth--;
	fermata_leave();
}

/* 1 when the calling thread is inside the device's library: its calls back into us pass straight through. */
static inline int fermata_in_device(void)
{
	return fermata_thread.device_depth != 0;
}
