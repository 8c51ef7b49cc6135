/* SPDX-License-Identifier: BSD-2-Clause */
/* semtimedop of which it can be said, wherever the thread is stopped, whether it has been done. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <ucontext.h>

#include "fermata/region.h"

struct sembuf;

_Static_assert(offsetof(struct fermata_thread_state, region) == 0, "semop.S counts the word at the beginning");

/* As the raw system call; comes back in fermata_enter, with that still to be left. */
long arch_semop(int id, const struct sembuf *ops, size_t n, const struct timespec *timeout);
extern const char arch_semop_done[];

/* The call has been done and the thread is not in fermata_enter yet: it must not be stopped here. */
static inline bool arch_semop_is_done(const ucontext_t *frame)
{
	const greg_t *g = frame->uc_mcontext.gregs;

	return g[REG_RIP] == (greg_t)arch_semop_done && g[REG_RAX] != -EINTR;
}
