/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stopped process (SIGSTOP, Ctrl-Z) takes part in a checkpoint: a process of its host's coordinator, or relay, traces it meanwhile, for a traced thread runs although its process is stopped
 * (coordinator/let_run_trace.c). It and the agent (agent/let_run.c) tell each other by the name of one file how far they are:
 *
 *   RUNDIR/JOB/let-run-WHERE-PID            the tracer makes it: this process runs although signal N, its contents, has stopped it
 *   RUNDIR/JOB/let-run-WHERE-PID.stopped    in QUIESCE the agent renames it: so it will be in the image
 *   RUNDIR/JOB/let-run-WHERE-PID.through    the agent renames either: it has come to the end, and waits until the file is gone and it is not traced any more
 *
 *   RUNDIR/JOB/let-run-WHERE-PID.continued  at a restart its parent makes it, and the agent takes it away: agent/continued.c
 *
 * WHERE is the number of its pid namespace (host_id.h), in 16 hex digits, PID its number there.
 */
#pragma once

#include <stdint.h>

#define LET_RUN_PREFIX "let-run-"
#define LET_RUN_STOPPED ".stopped"
#define LET_RUN_THROUGH ".through"
#define LET_RUN_CONTINUED ".continued"
#define LET_RUN_PATH 192u /* bytes: more than a path with any of the names takes, as sockets there have shorter ones */

/* The file of process @pid of @where in @jobdir, with @suffix. */
void let_run_path(char path[LET_RUN_PATH], const char *jobdir, uint64_t where, uint32_t pid, const char *suffix);
