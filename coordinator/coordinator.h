/* SPDX-License-Identifier: BSD-2-Clause */
/* The conductor of one job: the only entry point that commands use. */
#pragma once

struct coordinator_options {
	const char *job;
	const char *dir; /* absolute; checkpoints go to DIR/N */
	const char *compress, *rdma;
	const char *files; /* restore, check or ignore; NULL: restore */
	const char *on_failure, *on_signal; /* for what stays with the programs: kept, and told; NULL: none */
	unsigned int restarts;
	unsigned int interval_s; /* 0: only when asked */
	unsigned int keep;	 /* 0: all */
	unsigned int timeout_ms; /* of a phase */
	unsigned int grace_ms;	 /* from the last process's end to leaving: an exec or a launch may come. 0: a second */
	const char *restart; /* NULL, or a checkpoint's directory: its processes are expected */
	const char *listen; /* ADDR:PORT, where relays of other hosts connect to; NULL: nowhere */
	const char *relay; /* ADDR:PORT: this is a relay of the coordinator there; of the others only job counts then */
	int ready_fd; /* gets "ok" or the reason in words, then is closed; -1: none */
	int linger; /* 0: leaves when nobody is connected; 1: waits for a first process without limit */
};

/* Runs until the job has ended: 0, or -errno after it has said why. Sets nothing up outside of its directories. */
int coordinator_run(const struct coordinator_options *options);
