/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that fermata itself puts into a job (launch.c). */
#pragma once

#include "cli/cli.h"

/*
 * Joins the job, calls @joined, which may take as long as it likes while no checkpoint passes, and becomes this command with @argv under control. Returns an
 * exit status when that fails.
 */
int launch_member(const struct job_options *o, char **argv, int (*joined)(void *arg), void *arg);
