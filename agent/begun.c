/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the job's programs have from whoever began it (base/begun.h): inherited by fork with the memory, by exec with the environment; at a restart it is what `fermata restart` gives.
 *
 * Filters of system calls that a process has besides those are its own. No call tells what is in them unless root asks, so they could not be made again, and a process that came back
 * without would have more rights than it had given up. And they may refuse what a checkpoint calls, or end who calls it. So such a process is not even stopped: wrappers of prctl and
 * syscall note when one is made, and tell the coordinator that the process ends without a word from now on, or does not where none came of it; the kernel's count tells of those that came over an exec, or were made past libc by the first thread.
 *
 * Owns what was begun with, and the note.
 */
#include "base/begun.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"

static struct begun begun;
static _Atomic uint32_t own_filters;

void begun_init(void)
{
	if (begun_take(getenv("FERMATA_BEGUN"), &begun))
		begun_note(&begun);
}

void begun_restarted(void)
{
	begun_note(&begun);
}

const struct begun *fermata_begun(void)
{
	return &begun;
}

/* The child of a vfork has the parent's memory. Behind the call the thread may not even ask for its pid. */
bool begun_filter_begin(void)
{
	bool noted = agent.active && (uint32_t)raw_getpid() == agent.pid;

	own_filters += noted;
	if (noted)
		exit_foretold(true); /* at its end it may not */
	return noted;
}

/* Where that crosses what another thread foretells, the end of the process is at worst taken for a crash, and a checkpoint fails by it. */
void begun_filter_failed(bool noted)
{
	if (noted && !--own_filters)
		exit_foretold(false);
}

bool begun_filtered(void)
{
	return own_filters;
}

int begun_refuse(void)
{
	if (!own_filters && begun_filters("/proc/self/status") <= begun.filters)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "process %u has a seccomp filter of its own, which cannot be made again: a checkpoint can be taken before it sets one, or when it has ended", agent.pid);
}
