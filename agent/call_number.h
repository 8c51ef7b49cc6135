/* SPDX-License-Identifier: BSD-2-Clause */
/* Which system call a frame stands behind, whose it is, and its arguments. */
#pragma once

#include "agent/agent.h"

/* Counts from 0. */
static inline greg_t *call_arg(ucontext_t *f, unsigned int n)
{
	static const uint8_t regs[] = { REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9 };

	return &f->uc_mcontext.gregs[regs[n]];
}

/* Once: where libc is. */
void call_find_libc(void);
/* The frame stands in a function of libc's. */
bool call_is_of_libc(const ucontext_t *f);
/* Its number, or -1. @t: what was noted of the thread (call_note). */
long call_number(ucontext_t *f, const struct stop_thread *t);
/* Notes that the thread was to begin the call before which the frame stands again. */
void call_is_next(struct stop_thread *t, ucontext_t *f);
