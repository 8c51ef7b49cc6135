/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker thread that neither libc nor a debugger of the program knows of: raw clone, every signal blocked, joined by the futex word that the
 * kernel clears. It shares its maker's thread pointer, so its function must not touch thread-local storage: no errno, no libc
 * call but mem* and str*, no fermata_enter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BASE_SANITIZED
#endif

struct raw_thread {
	uint32_t tid; /* 0 when it has ended */
};

/* Runs @fn(@arg) on @stack, which must live until the join. 0 or -errno. */
int raw_thread_spawn(struct raw_thread *t, void (*fn)(void *), void *arg, void *stack, size_t stack_size);
/* As raw_thread_spawn, with a thread pointer of its own (@tls; NULL: its maker's, too) and, if @own_files, a copy of the table of
 * descriptors and no part in the process's semaphore adjustments, of which the kernel would make a list for it (kcmp shows that). */
int raw_thread_spawn_apart(struct raw_thread *t, void *tls, bool own_files, void (*fn)(void *), void *arg, void *stack,
			   size_t stack_size);
void raw_thread_join(struct raw_thread *t);
/* Bytes, in whole pages, that are to be zero below the thread pointer (@tls) of a thread that calls libc or libraries. */
size_t raw_thread_local_size(void);
