/* SPDX-License-Identifier: BSD-2-Clause */
/* Between stop.c, whose word the stopped threads wait on, and stop_lend.c. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LEND 1u /* in the word: a loan waits for its thread */

/* In a stopped thread that has read @seen: false: nothing for it to do, it may sleep on @seen. */
bool lend_serve(_Atomic uint32_t *word, uint32_t seen);
/* What @fn has answered in thread @tid (0: any), which stands: 0 or -errno. */
int lend_run(_Atomic uint32_t *word, int tid, int (*fn)(void *), void *arg);
