/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process, its child, and a program that this has become, that have taken all descriptors that they may have, as programs do that try how many they can have: those too that whoever watches them might like to have.
 */
#include "feature.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define MANY 1100 /* beyond those of the agent's own */

static char held[MANY];

/* What is not free before, is somebody's. */
static void take(void)
{
	int fd;

	while ((fd = fcntl(0, F_DUPFD, 3)) >= 0)
		held[fd] = 1;
	CHECK(errno == EMFILE);
}

static void check(void)
{
	for (int fd = 3; fd < MANY; fd++)
		CHECK(!held[fd] || fcntl(fd, F_GETFD) == 0);
	take(); /* after a restart the agent's own are others */
}

static void child(int tell)
{
	take();
	CHECK(write(tell, "r", 1) == 1);
	while (!feature_finished()) {
		check();
		feature_work();
	}
	_exit(0);
}

static pid_t begin(int tell, int executes)
{
	char text[16];
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	snprintf(text, sizeof(text), "%d", tell);
	if (executes)
		execl("/proc/self/exe", "crowded", text, NULL);
	child(tell);
	return -1;
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	int status, ends[2];
	char byte;
	pid_t pids[2];

	if (argc > 1)
		child(atoi(argv[1]));
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = MANY;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 2; i++) {
		pids[i] = begin(ends[1], i);
		CHECK(read(ends[0], &byte, 1) == 1);
	}
	take();
	CHECK(close(MANY - 1) == 0); /* that a step takes */
	feature_ready();
	do {
		take();
		feature_work();
		check();
		CHECK(close(MANY - 1) == 0);
	} while (feature_step());
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
