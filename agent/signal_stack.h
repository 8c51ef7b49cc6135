/* SPDX-License-Identifier: BSD-2-Clause */
/* What a signal's frame says of the thread's signal stack (sigaltstack(2)). */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Its end, too, is still on it: a stack pointer is there before the first push. */
static inline bool signal_stack_holds(const stack_t *stack, uint64_t sp)
{
	return sp - (uint64_t)stack->ss_sp <= stack->ss_size && stack->ss_size;
}
