/* SPDX-License-Identifier: BSD-2-Clause */
/* What stop.c does for who asks the threads. */
#pragma once

#include "agent/agent.h"

/* Asks thread @tid, whose slot is @slot, by @sig. 0 or -errno. */
int stop_ask(int tid, uint32_t slot, uint32_t epoch, int sig);
/* From here on handlers answer to @epoch. */
void stop_begin(uint32_t epoch);
/* How many answers there were, and until there are others than @seen. False: @limit has passed. */
uint32_t stop_events(void);
bool stop_events_await(uint32_t seen, const struct timespec *limit);
