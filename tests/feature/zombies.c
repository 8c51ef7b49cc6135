/* SPDX-License-Identifier: BSD-2-Clause */
/* A child that has ended but was not waited for, one killed by a signal: their statuses are there at the end. */
#include "feature.h"

#include <signal.h>
#include <sys/wait.h>

static void wait_dead(pid_t pid)
{
	siginfo_t info;

	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}

int main(void)
{
	pid_t ended, killed;
	int status;

	ended = fork();
	CHECK(ended >= 0);
	if (ended == 0)
		_exit(42);
	killed = fork();
	CHECK(killed >= 0);
	if (killed == 0)
		for (;;)
			pause();
	CHECK(kill(killed, SIGKILL) == 0);
	wait_dead(ended);
	wait_dead(killed);
	feature_ready();
	while (feature_step()) {
		feature_work();
		wait_dead(ended);
		wait_dead(killed);
	}
	CHECK(waitpid(ended, &status, 0) == ended);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	CHECK(waitpid(killed, &status, 0) == killed);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return 0;
}
