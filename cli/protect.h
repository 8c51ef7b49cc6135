/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that stays with a job: `fermata launch` and `fermata restart` with --on-signal. The program, or the restart, is its child
 * in its own process group, so that the terminal is shared as ever; signals are passed on; its exit status is the child's, or 99.
 *
 *   protect.c       the child's life, and what is to be done at its end
 *   protect_link.c  the coordinator: a checkpoint for requeue, and why the job is ended
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/cli.h"

struct protect {
	const char *job;
	const char *on_signal; /* of options_signal() */
	/* In the child: becomes the program, or brings the job back and ends with its status. Once the job runs, a byte on @ready. */
	int (*begin)(void *arg, int ready);
	void *arg;
	struct job *handed; /* a connection that is the child's alone; or NULL */
	bool restart; /* the job runs when @begin has said so, not at once */

	/* protect.c's */
	int signal; /* 0: none */
	pid_t child;
	int status; /* its wait status */
	bool ended, runs;
	sigset_t mask;	       /* our caller's */
	struct sigaction chld; /* likewise */
	int signal_fd, ready_fd;

	/* protect_link.c's */
	struct job coordinator; /* link.fd < 0: it is gone */
	bool asked;		/* for a checkpoint whose result has not come */
	bool requeue;		/* the job was ended at a checkpoint for that */
};

/* The signal is for us from now on, before there is a job that it could hit. */
void protect_hold(const char *on_signal);
/* The exit status; or dies as the program did. */
int protect_run(struct protect *p);

/* ---- protect_link.c ---- */
void protect_watch(struct protect *p);	/* from now on it is heard why the job is ended */
void protect_ask(struct protect *p);	/* for a checkpoint, and the job's end */
void protect_hear(struct protect *p);	/* one message */
void protect_drain(struct protect *p);	/* what has come */
void protect_wait_gone(struct protect *p); /* the job's end: the last of its processes, and the coordinator */
