/* SPDX-License-Identifier: BSD-2-Clause */
/* A call on behalf of a thread that stands behind it, unless a signal has had its handler run there first: agent/call_woken.c. */
#pragma once

/* The thread's stack pointer is so much lower meanwhile: one step of what the kernel aligns a frame to, and less than the red zone, whose far end is woken.S's then. */
#define ARCH_WOKEN_BELOW 64
#define ARCH_WOKEN_RED_ZONE 128 /* System V ABI for x86-64, 3.2.2 */

/* A frame's words that the kernel always writes, and that are never so: SIGKILL is in no mask. */
#define ARCH_WOKEN_NONE -1
#define ARCH_MASK_OF_FRAME 296	 /* bytes: uc_sigmask of the kernel's struct ucontext, which is the interrupted code's */
#define ARCH_OLDMASK_OF_FRAME 208 /* the same again, in struct sigcontext: sigreturn does not read it (arch/x86/kernel/signal_64.c) */

#ifndef __ASSEMBLER__
#include <stdint.h>

/* The first instruction; the call; the one behind it, with its answer in rax, which is another one's only where it is -EINTR; the last. */
extern const char arch_woken_begins[], arch_woken_calls[], arch_woken_called[], arch_woken_leaves[];

/* Where it goes on, for one with this stack pointer. */
static inline uint64_t *arch_woken_pc(uint64_t sp)
{
	return (uint64_t *)(sp - ARCH_WOKEN_RED_ZONE);
}
#endif
