/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that stays with a job: `fermata launch` and `fermata restart` with --on-signal or --on-failure. The program, or a restart, is its child
 * in its own process group, so that the terminal is shared as ever; signals are passed on; its exit status is the child's, or 99.
 *
 *   protect.c          the child's life, and what is to be done at its end
 *   protect_link.c     the coordinator: a checkpoint for requeue, and why the job is ended
 *   protect_failure.c  what is a failure, and from where the job comes back
 */
#pragma once

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"

#define PROTECT_PASSED_MAX 16

struct restart_command; /* restart.c's */

struct protect {
	const char *job;
	const char *dir; /* of its checkpoints */
	const char *on_signal; /* of options_signal() */
	bool on_failure, keeps; /* the job is to be brought back; and it is us who do that */
	unsigned int restarts; /* at most so often */
	/* In the child: becomes the program, or brings the job back and ends with its status. Once the job runs, a byte on @ready. */
	int (*begin)(void *arg, int ready);
	void *arg;
	const struct restart_command *restart_command; /* what --rdma, --files .. said; NULL: as it was launched */
	struct job *handed; /* a connection that is the child's alone; or NULL */
	const char *program; /* NULL: the job runs when @begin has said so, not at once */
	const char *from; /* the checkpoint that @begin brings it back from; NULL: none */

	/* protect.c's */
	int signal; /* 0: none */
	pid_t child;
	int status; /* its wait status */
	bool ended, runs;
	bool to_end; /* somebody has asked the job to end */
	sigset_t mask;	       /* our caller's */
	struct sigaction chld; /* likewise */
	int signal_fd, ready_fd;

	/* protect_link.c's */
	struct job coordinator; /* link.fd < 0: it is gone */
	bool asked;		/* for a checkpoint whose result has not come */
	bool requeue;		/* the job was ended at a checkpoint for that */
	uint32_t ending;	/* enum msg_ending_reason, if it was told */
	char failed[256];	/* which program has, where it is not our child */

	/* protect_failure.c's */
	uint64_t floor; /* the newest checkpoint that was there before us */
	char checkpoint[PATH_MAX];
	uint64_t number; /* of that checkpoint */
	uint64_t passed[PROTECT_PASSED_MAX]; /* those that could not be used, or from which the job has failed too often */
	unsigned int passed_count;
	unsigned int done, same; /* restarts; from that checkpoint */
};

/* The signal is for us from now on, before there is a job that it could hit. */
void protect_hold(const char *on_signal);
/* The exit status; or dies as the program did. */
int protect_run(struct protect *p);

/* ---- restart.c ---- in the child: the job comes back from @checkpoint, and its end is ours */
int restart_again(const struct protect *p, int ready);

/* ---- protect_link.c ---- */
void protect_watch(struct protect *p);	/* from now on it is heard why the job is ended */
void protect_ask(struct protect *p);	/* for a checkpoint, and the job's end */
void protect_hear(struct protect *p);	/* one message */
void protect_drain(struct protect *p);	/* what has come */
void protect_wait_gone(struct protect *p); /* the job's end: the last of its processes, and the coordinator */
void protect_tell_failed(struct protect *p, const char *what); /* the job is ended, where somebody brings it back */

/* ---- protect_failure.c ---- */
/* A wait status that nobody has asked for: any but 0, SIGHUP, SIGINT, SIGTERM, also as a shell tells them. */
bool protect_is_failure(int status);
void protect_describe(int status, char *buf, size_t size); /* "was killed by signal 9 (Killed)" */
void protect_remember(struct protect *p); /* which checkpoints there are, before the job begins */
/* The child has failed. True: what is left of the job is ended, and @checkpoint is to be brought back; why not is said. */
bool protect_return(struct protect *p);
