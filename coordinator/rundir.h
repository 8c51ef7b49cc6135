/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the running jobs of a user are found: RUNDIR/JOB/{sock,key,pid,lock,info.json,streams,log}. Used by the coordinator, which
 * owns RUNDIR/JOB while it holds the lock there, and by the commands, which look jobs up.
 */
#pragma once

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/message.h"

#define RUNDIR_PATH_MAX 512
#define RUNDIR_JOB_MAX 63

/* 0, or -EINVAL with nothing said: letters, digits and ._- only, no dot in front, at most RUNDIR_JOB_MAX. */
int rundir_job_check(const char *job);
/*
 * The directory that new jobs go to, made if missing. Errors are logged with the path and the remedy. -ENAMETOOLONG: a socket's
 * path in it would not fit into a socket address.
 */
int rundir_create(char ret[RUNDIR_PATH_MAX]);
/* Directory of a running job, looked for in every place that one may be in. -ENOENT: no such job runs. */
int rundir_find(const char *job, char ret[RUNDIR_PATH_MAX]);
/* Calls @fn for each running job; stops at the first non-zero answer and gives it back. */
int rundir_each(int (*fn)(const char *job, const char *jobdir, void *arg), void *arg);
/* Only one process at a time starts or removes jobs of a user: a descriptor to close, -EAGAIN if @wait is 0, or -errno. */
int rundir_lock(int wait);
/* Takes RUNDIR/JOB over: makes it, removes what a dead coordinator left. A lock's descriptor, -EBUSY: another one lives. */
int rundir_job_create(const char *job, char ret_jobdir[RUNDIR_PATH_MAX], uint8_t ret_key[PROTOCOL_KEY_SIZE]);
/* Removes the job's files and its directory; not what processes stand by (agent/standing.c) where some are @living. */
void rundir_job_remove(const char *jobdir, bool living);
/* 1: a coordinator holds the job's lock. */
int rundir_job_lives(const char *jobdir);
