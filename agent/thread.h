/* SPDX-License-Identifier: BSD-2-Clause */
/* What a bare thread of the agent's stands on. */
#pragma once

#include <stddef.h>

#include "base/thread.h"

/*
 *   | guard | stack | initial-exec TLS of all libraries (zero) | tcb: self pointer at 0 and 16, canary at 40, guard at 48 | dtv (zero) |
 */
struct thread_block {
	char *start; /* kept for the life of the process */
	struct raw_thread thread;
};

#define THREAD_DTV (64u << 10)

/* Zeroed also where a thread of this process, or of the parent that we were forked from, has stood there before. 0 or -errno. */
int thread_block_prepare(struct thread_block *b);
int thread_block_run(struct thread_block *b, bool own_files, void (*body)(void *), void *arg);
char *thread_block_tcb(const struct thread_block *b);
char *thread_block_dtv(const struct thread_block *b);
