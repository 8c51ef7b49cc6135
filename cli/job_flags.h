/* SPDX-License-Identifier: BSD-2-Clause */
/* The options that say how a job runs, which fermata launch and fermata coordinator have: job_flags.c. */
#pragma once

#include <getopt.h>

#include "cli/cli.h"

/* Each has a variable, FERMATA_ and the name here. */
#define JOB_FLAGS(X)                                                                                                        \
	X(JOB, "job") X(DIR, "dir") X(INTERVAL, "interval") X(KEEP, "keep") X(COMPRESS, "compress") X(RDMA, "rdma") X(FILES, "files") \
	X(EXTERNAL, "external") X(TEXT, "text") X(ON_FAILURE, "on-failure") X(RESTARTS, "restarts") X(ON_SIGNAL, "on-signal") X(TIMEOUT, "timeout") \
	X(LISTEN, "listen")

#define JOB_FLAG_ENUM(NAME, name) JOB_FLAG_##NAME,
enum job_flag { JOB_FLAGS(JOB_FLAG_ENUM) JOB_FLAG_COUNT };

/* Their elements of a table for getopt_long. */
#define JOB_FLAG_FIRST 512
#define JOB_FLAG_LONG(NAME, name) { name, required_argument, NULL, JOB_FLAG_FIRST + JOB_FLAG_##NAME },
#define JOB_FLAGS_LONG JOB_FLAGS(JOB_FLAG_LONG)

struct job_flags {
	const char *given[JOB_FLAG_COUNT]; /* NULL: not on the command line */
	char on_signal[JOB_SIGNAL_MAX];	   /* as options_signal() says it, by job_flags_options() */
};

/* Takes what getopt_long has returned; false: it is none of these. */
bool job_flags_take(struct job_flags *f, int option, const char *value);
/* The option's value, else its variable's; NULL: neither. */
const char *job_flags_text(const struct job_flags *f, enum job_flag flag);
/* All but the job's name and directory, checked: 0, or -EINVAL after it has said what is wrong. @o points into @f. */
int job_flags_options(struct job_flags *f, struct job_options *o);
