/* SPDX-License-Identifier: BSD-2-Clause */
/* A tree of processes, three deep, whose members compute; meanwhile short-lived children come, go, and are waited for. */
#include "feature.h"

#include <sys/wait.h>

enum { CHILDREN = 2, DEPTH = 2 };

static void work_until_end(void)
{
	struct chain chain = { 0 };
	pid_t parent = getppid();

	while (!feature_finished()) {
		chain_step(&chain, 100000);
		CHECK(getppid() == parent);
	}
	chain_check(&chain);
}

static void grow(int depth, int *ret_forks)
{
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			int forks = 0;

			if (depth > 1)
				grow(depth - 1, &forks);
			work_until_end();
			for (int k = 0; k < forks; k++) {
				int status;

				CHECK(wait(&status) > 0);
				CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 10 + depth - 1);
			}
			CHECK(wait(NULL) == -1 && errno == ECHILD);
			_exit(10 + depth);
		}
	}
	*ret_forks = CHILDREN;
}

static void fork_brief(int n)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		feature_work();
		_exit(n & 0x7f);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (n & 0x7f));
}

int main(void)
{
	int forks, n = 0, status;

	grow(DEPTH, &forks);
	feature_ready();
	while (feature_step())
		fork_brief(n++);
	for (int i = 0; i < forks; i++) {
		CHECK(wait(&status) > 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 10 + DEPTH);
	}
	CHECK(wait(NULL) == -1 && errno == ECHILD);
	return 0;
}
