/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A parent that is not of the job (a shell, a batch system's step) is another one after a restart: the capsule's first process, of number 1, or `fermata restart`. A program takes that for the end of its
 * parent, and may end as well: the number 1 says "orphan" to it. So it is told the number that it knows, as long as that parent is there, which is as long as the job is. The kernel's own is in /proc.
 *
 * Owns that pair of numbers: written while all threads stand, and in the child of a fork, whose parent is another.
 */
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wrap.h"

static int noted;	   /* in QUIESCE */
static int parent, shown; /* 0: what the kernel says */

static int as_shown(int pid)
{
	return unlikely(parent) && pid == parent ? shown : pid;
}

EXPORT pid_t getppid(void)
{
	int r;

	fermata_enter();
	r = as_shown(raw_getppid());
	fermata_leave();
	return r;
}

void parent_note(void)
{
	noted = as_shown(raw_getppid());
}

void parent_restarted(void)
{
	int now = raw_getppid();

	parent = now != noted ? now : 0;
	shown = noted;
}

void parent_forked(void)
{
	parent = 0;
}
