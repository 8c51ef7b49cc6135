/* SPDX-License-Identifier: BSD-2-Clause */
/* A restart's run: restart_session.c, which owns it, and its side to the coordinator, restart_coordinator.c. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/restart.h"
#include "protocol/link.h"

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
