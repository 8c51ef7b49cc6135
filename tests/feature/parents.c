/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose child a process is: the first one's parent, which is not of the job, stays the same number to it; that of a child is the first one; and of a child's child, whose parent has ended, whoever takes
 * orphans: here the first one (PR_SET_CHILD_SUBREAPER), as ever since.
 */
#include "feature.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void stay(pid_t parent)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (; !feature_finished(); feature_work())
		CHECK(getppid() == parent);
	_exit(0);
}

static pid_t make_orphan(pid_t reaper)
{
	int ends[2], status;
	pid_t middle, orphan;

	CHECK(pipe(ends) == 0);
	middle = fork();
	CHECK(middle >= 0);
	if (middle == 0) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			while (getppid() != reaper)
				usleep(1000);
			pid = getpid();
			CHECK(write(ends[1], &pid, sizeof(pid)) == sizeof(pid));
			stay(reaper);
		}
		_exit(0);
	}
	CHECK(waitpid(middle, &status, 0) == middle && read(ends[0], &orphan, sizeof(orphan)) == sizeof(orphan) && close(ends[0]) == 0 && close(ends[1]) == 0);
	return orphan;
}

int main(void)
{
	pid_t self = getpid(), parent = getppid(), child, orphan;
	int status;

	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		stay(self);
	orphan = make_orphan(self);
	feature_ready();
	do {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(getppid() != self);
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK(getppid() == parent);
		feature_work();
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0 && waitpid(orphan, &status, 0) == orphan && status == 0);
	return 0;
}
