/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that are called in new threads: between call_thread.c, wrap_timer.c, wrap_mqueue.c and our handler. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <time.h>

int call_thread_timer(clockid_t clock, const struct sigevent *event, timer_t *ret); /* 0 or errno, as it is to be */
void call_thread_timer_deleted(int id);
/* What is to be registered for queue @ino in place of @event: 0 or errno. If it then was not: failed. */
int call_thread_message(uint64_t ino, const struct sigevent *event, struct sigevent *ret);
void call_thread_message_failed(const struct sigevent *made);
void call_thread_message_came(siginfo_t *info); /* in our handler, or where our signal is taken: its code is SI_MESGQ */
void call_thread_forked(void);
