/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that block our signal: between stop.c and stop_setxid.c. */
#pragma once

#include <signal.h>
#include <stdbool.h>

struct stop_thread;

bool stop_setxid_needed(struct stop_thread *t); /* asked by our signal, it takes that one no time soon, but would take SIGSETXID */
int stop_setxid_take(void);	       /* SIGSETXID calls our handler from now on; 0 or -errno */
void stop_setxid_pass(int sig, siginfo_t *info, void *context); /* in our handler: a SIGSETXID that is not of ours */
void stop_setxid_taken(void);	       /* in our handler: by one that is */
void stop_setxid_forget(void);	       /* behind an exec: what was asked of the image before */
