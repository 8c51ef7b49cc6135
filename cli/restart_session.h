/* SPDX-License-Identifier: BSD-2-Clause */
/* A restart's run: restart_session.c, which owns it, its signals, restart_session_signals.c, and its side to the coordinator, restart_coordinator.c. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/restart.h"
#include "protocol/link.h"

#define SESSION_INTERRUPT_GRACE_MS 300 /* the coordinator's word that the programs run may be on its way */

enum { WATCH_INIT, WATCH_LOG, WATCH_LINK, WATCH_SIGNAL, WATCH_ORDERS, WATCH_COUNT };

struct session {
	struct restart *restart;
	struct restart_gate gate;
	struct link link;
	pid_t init, gdb; /* gdb: 0: there is none */
	struct pollfd watch[WATCH_COUNT];
	bool complete;	  /* the job runs again */
	bool failed;	  /* it never will; the cause has been said */
	struct capsule_message early; /* a root that ended before the restart was complete; pid 0: none */
	double early_since;
	double progress_told;
	int interrupt; /* a signal that came before the restart was complete; 0: none */
	double interrupt_since;
	bool init_ended;
	bool to_end;  /* somebody has asked the programs to end */
	bool failing; /* one has failed, and all are being ended */
	bool has_terminal; /* we gave it away */
	pid_t foreground;  /* the group that had it when we took it; 0: none yet */
	int worst;	  /* the first wait status that is not 0 */
	size_t roots;
};

double session_now(void); /* seconds of the monotonic clock */

/* The job's coordinator, started anew; tells us how the restart ends. 0 or an exit code, the reason said. */
int session_start_coordinator(struct session *s);
/* As long as files are read and put back, the coordinator waits. @arg: the session. */
void session_keep_alive(void *arg);
/* Its word on how the restart has ended, or its end. */
void session_hear_coordinator(struct session *s);
/* gdb has left the job. */
void session_end_debugging(struct session *s);

/* The terminal's settings are the job's to set; it goes to the programs, if we have it; it comes back. */
bool session_may_set_terminal(const struct restart *r);
/* Programs whose group had the old one take the new one by themselves, before they go on (agent/fd_stdio.c). */
bool session_terminal_is_taken(struct session *s);
void session_give_terminal(struct session *s);
void session_take_terminal(struct session *s);
/* A descriptor on which signals come, or -1. */
int session_watch_signals(void);
void session_hear_signal(struct session *s);
/* Passes it on, or gives the restart up; @from_terminal: the programs have it already. */
void session_take_signal(struct session *s, int sig, bool from_terminal);
void session_judge_interrupt(struct session *s);
