/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process, its child, and a program that this has become, that have taken all numbers of descriptors up to a thousand, as programs do that try how many they can have: those too that whoever watches them might like to have.
 */
#include "feature.h"

#include <sys/wait.h>

#define MANY 1000

static char held[MANY + 1];

/* What is not free before, is somebody's. */
static void take(void)
{
	int fd;

	do {
		fd = fcntl(0, F_DUPFD, 3);
		if (fd >= 0 && fd <= MANY)
			held[fd] = 1;
	} while (fd >= 0 && fd < MANY);
	CHECK(fd >= 0 || errno == EMFILE);
	if (fd > MANY)
		CHECK(close(fd) == 0);
}

static void check(void)
{
	for (int fd = 3; fd <= MANY; fd++)
		CHECK(!held[fd] || fcntl(fd, F_GETFD) == 0);
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
	int status, ends[2];
	char byte;
	pid_t pids[2];

	if (argc > 1)
		child(atoi(argv[1]));
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 2; i++) {
		pids[i] = begin(ends[1], i);
		CHECK(read(ends[0], &byte, 1) == 1);
	}
	take();
	CHECK(close(MANY - 1) == 0); /* that a step takes */
	held[MANY - 1] = 0;
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
