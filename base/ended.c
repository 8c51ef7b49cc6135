/* SPDX-License-Identifier: BSD-2-Clause */
/* A child that is made to be dead. Owns nothing. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/ended.h"
#include "base/sys.h"

int ended_child_open(int (*open)(int pid, void *arg), void *arg)
{
	int parent = raw_getpid(), fd, pid = (int)RAW5(SYS_clone, CLONE_UNTRACED, 0, NULL, NULL, 0);

	if (!pid) {
		RAW5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		while (raw_getppid() == parent) /* else it has died before */
			RAW5(SYS_ppoll, NULL, 0, NULL, NULL, 8);
		RAW1(SYS_exit_group, 0);
	}
	if (pid < 0)
		return pid;
	fd = open(pid, arg);
	RAW2(SYS_kill, pid, SIGKILL);
	while (RAW4(SYS_wait4, pid, NULL, __WALL, NULL) == -EINTR)
		;
	return fd;
}
