/* SPDX-License-Identifier: BSD-2-Clause */
/* A process of fermata becomes a program under control: launch_become.c. */
#pragma once

#include "cli/cli.h"

#define LAUNCH_PATH_MAX 4096

struct launch {
	struct job job; /* joined */
	char program[LAUNCH_PATH_MAX], agent[JOB_PATH_MAX], libdir[JOB_PATH_MAX];
	char **argv;
};

/* Where the agent and the other parts are: 0, or -errno after it has said why not. */
int launch_find_parts(struct launch *l);
/* @arg: a struct launch. Returns an exit status if it fails; @ready is not needed (protect.h). */
int launch_become(void *arg, int ready);

/*
 * Joins the job, calls @joined, which may take as long as it likes while no checkpoint passes, and becomes this command with @argv. Returns an
 * exit status when that fails.
 */
int launch_member(const struct job_options *o, char **argv, int (*joined)(void *arg), void *arg);
