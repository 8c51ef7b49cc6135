/* SPDX-License-Identifier: BSD-2-Clause */
/* The conductor of one job: the only entry point that commands use. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECTORIES_MAX 16

/* A file that the job has open for writing, or mapped. */
struct directories_open {
	uint64_t dev, ino;
	bool mapped;
};

/* Directories that a checkpoint is to hold (--with), while the job stands: an order to who knows how, and what has become of it. */
struct directories_order {
	const char *const *paths;
	unsigned int count;
	const char *dir, *partial; /* the job's checkpoints; the one under way */
	bool contents; /* false: their sums only */
	struct directories_open *open; /* ascending */
	size_t open_count;
	bool open_saved; /* the contents of those are in the images, but of mapped ones */
	/* While it runs: */
	_Atomic bool cancelled;
	_Atomic uint64_t done, total; /* bytes */
	/* The result: */
	struct directories_result {
		uint64_t files, bytes; /* that it has, and their data */
		uint64_t linked;       /* of these files: as the checkpoint before has them */
		uint64_t left_out;
		uint8_t digest[16]; /* of the list */
	} results[DIRECTORIES_MAX];
	char text[512]; /* why it could not be done */
};

struct coordinator_options {
	const char *job;
	const char *dir; /* absolute; checkpoints go to DIR/N */
	const char *compress, *rdma;
	const char *files; /* restore, check or ignore; NULL: restore */
	const char *external; /* fail, error or reconnect-listen; NULL: fail */
	const char *text; /* ref or save; NULL: ref */
	const char *on_failure, *on_signal; /* for what stays with the programs: kept, and told; NULL: none */
	unsigned int restarts;
	unsigned int interval_s; /* 0: only when asked */
	unsigned int keep;	 /* 0: all */
	unsigned int timeout_ms; /* of a phase */
	unsigned int grace_ms;	 /* from the end of a process of which an exec or a child may come to leaving. 0: a second */
	const char *const *with; /* absolute paths of directories that a checkpoint holds, too */
	unsigned int with_count; /* at most DIRECTORIES_MAX */
	/* Puts them into a checkpoint, on a thread of its own: 0, or -errno with order.text. */
	int (*save_directories)(struct directories_order *order);
	const char *restart; /* NULL, or a checkpoint's directory: its processes are expected */
	const char *listen; /* ADDR:PORT, where relays of other hosts connect to; NULL: nowhere */
	const char *relay; /* ADDR:PORT: this is a relay of the coordinator there; of the others only job counts then */
	int ready_fd; /* gets "ok" or the reason in words, then is closed; -1: none */
	int linger; /* 0: leaves when nobody is connected; 1: waits for a first process without limit */
};

/* Runs until the job has ended: 0, or -errno after it has said why. Sets nothing up outside of its directories. */
int coordinator_run(const struct coordinator_options *options);
