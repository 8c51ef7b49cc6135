/* SPDX-License-Identifier: BSD-2-Clause */
/* Timers that call a function in a new thread: between wrap_timer.c and timer_thread.c. */
#pragma once

#include <signal.h>
#include <time.h>

int timer_thread_create(clockid_t clock, const struct sigevent *event, timer_t *ret); /* 0 or errno, as it is to be */
void timer_thread_deleted(int id);
void timer_thread_forked(void);
