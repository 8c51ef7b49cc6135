/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pipes and sockets that a job's programs were begun or restarted with as their standard streams, by whomever: RUNDIR/JOB/streams, a struct stream each. A shell
 * keeps one under another number while it redirects its own (exec 3>&1 >log, { ..; } 2>/dev/null); by this file it is known where none of the job's processes has it as a stream.
 * Whoever launches or restarts adds to it; agents look into it (agent/fd_stdio.c). The coordinator removes it with the job.
 */
#pragma once

#include <stdint.h>

#define STREAMS_FILE "streams"

struct stream {
	uint64_t dev, ino;
	uint32_t access; /* O_ACCMODE bits */
	uint32_t number; /* 0, 1 or 2 */
};

/* Adds those of this process to the file of @jobdir. 0 or -errno. */
int streams_note(const char *jobdir);
/* Calls @fn for each in the file of @jobdir. 0, also where there is no file, or -errno. */
int streams_each(const char *jobdir, void (*fn)(const struct stream *s, void *arg), void *arg);
