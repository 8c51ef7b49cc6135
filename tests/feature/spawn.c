/* SPDX-License-Identifier: BSD-2-Clause */
/* Other people's programs are started in every way: posix_spawn, vfork, system, popen; what they say arrives. */
#include "feature.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void by_spawn(void)
{
	char *argv[] = { "sh", "-c", "exit 3", NULL };
	int status;
	pid_t pid;

	CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void by_vfork(void)
{
	int status;
	pid_t pid = vfork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execl("/bin/false", "false", NULL);
		_exit(99);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void by_popen(void)
{
	char line[64] = "";
	FILE *f = popen("echo hello; exit 5", "r");

	CHECK(f);
	CHECK(fgets(line, sizeof(line), f));
	CHECK(strcmp(line, "hello\n") == 0);
	CHECK(WEXITSTATUS(pclose(f)) == 5);
}

int main(void)
{
	feature_ready();
	while (feature_step()) {
		by_spawn();
		by_vfork();
		by_popen();
		CHECK(WEXITSTATUS(system("exit 4")) == 4);
	}
	return 0;
}
