/* SPDX-License-Identifier: BSD-2-Clause */
/* How stopped threads sleep, and work for others meanwhile. For stop.c. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In a stopped thread: sleeps, and does what is asked of it, as long as @word is @value. */
void lend_wait(const _Atomic uint32_t *word, uint32_t value);
/* Sets it to 0, and lets all go. */
void lend_end(_Atomic uint32_t *word);
/* What @fn has answered in thread @tid (0: any), which stands: 0 or -errno. */
int lend_run(int tid, int (*fn)(void *), void *arg);
