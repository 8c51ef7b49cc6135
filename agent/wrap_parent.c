/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A parent that is not of the job (a shell, a batch system's step) is another one after a restart: the capsule's first process, of number 1, or `fermata restart`. A program takes that for the end of its
 * parent, and may end as well: the number 1 says "orphan" to it. So it is told the number that it knows, as long as that parent is there, which is as long as the job is. The kernel's own is in /proc.
 *
 * A parent may put a child into a process group until that has executed a program, and to the kernel every process of a restart has. Shells do it twice, in the parent and in the child, and count on one of both having been first: whatever
 * they then do with the group has to find the child there. So after a restart the parent waits for the child to do its part. One that leaves it to the parent alone is not put there, with EACCES. Whether a child has
 * executed a program in truth its agent knows; that of one which has not lies where ours does.
 *
 * Owns that pair of numbers: written while all threads stand, and in the child of a fork, whose parent is another.
 */
#include <errno.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define CHILD_MS 1000

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

/* Where that may not be read: it has not. */
static bool has_executed(pid_t pid)
{
	uint32_t number = 0;
	bool forked = false;
	const struct iovec here[2] = { { &number, sizeof(number) }, { &forked, sizeof(forked) } }, there[2] = { { &agent.pid, sizeof(number) }, { &agent.forked, sizeof(forked) } };
	const long n = RAW6(SYS_process_vm_readv, pid, here, 2, there, 2, 0);

	return n == -EFAULT || (n >= 0 && (n != sizeof(number) + sizeof(forked) || number != (uint32_t)pid || !forked));
}

static long await_group(pid_t pid, pid_t group)
{
	const struct timespec step = { 0, 1000000 };
	long now = 0;

	for (int i = 0; i < CHILD_MS && now >= 0; i++) {
		now = RAW1(SYS_getpgid, pid);
		if (now == group)
			return 0;
		RAW2(SYS_nanosleep, &step, NULL);
	}
	return -EACCES;
}

EXPORT int setpgid(pid_t pid, pid_t group)
{
	long r = RAW2(SYS_setpgid, pid, group);

	if (unlikely(r == -EACCES) && agent.generation && phase_had_child((uint32_t)pid) && !has_executed(pid))
		r = await_group(pid, group ? group : pid);
	if (r >= 0)
		return 0;
	errno = (int)-r;
	return -1;
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
