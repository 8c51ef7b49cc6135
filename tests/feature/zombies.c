/* SPDX-License-Identifier: BSD-2-Clause */
/* A child that has ended but was not waited for, one killed by a signal, one that dumped core: their statuses are there at the end, and no core but that one. */
#include "feature.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void wait_dead(pid_t pid)
{
	siginfo_t info;

	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}

static int cores(void)
{
	DIR *d = opendir(".");
	struct dirent *e;
	int count = 0;

	CHECK(d != NULL);
	while ((e = readdir(d)))
		count += !strncmp(e->d_name, "core", 4);
	closedir(d);
	return count;
}

static pid_t dump_core(void)
{
	const struct rlimit room = { 1 << 20, 1 << 20 };
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &room); /* it may be less already */
		abort();
	}
	wait_dead(pid);
	return pid;
}

int main(void)
{
	pid_t ended, killed, dumped;
	siginfo_t info;
	int status, code, files;

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
	dumped = dump_core();
	CHECK(waitid(P_PID, (id_t)dumped, &info, WEXITED | WNOWAIT) == 0);
	code = info.si_code; /* CLD_KILLED: the system does not let it */
	files = cores();
	feature_ready();
	while (feature_step()) {
		feature_work();
		wait_dead(ended);
		wait_dead(killed);
		CHECK(waitid(P_PID, (id_t)dumped, &info, WEXITED | WNOWAIT) == 0 && info.si_status == SIGABRT && info.si_code == code);
		CHECK(cores() == files);
	}
	CHECK(waitpid(ended, &status, 0) == ended);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	CHECK(waitpid(killed, &status, 0) == killed);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(waitpid(dumped, &status, 0) == dumped);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && !WCOREDUMP(status) == (code == CLD_KILLED));
	return 0;
}
