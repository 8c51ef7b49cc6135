/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that close whatever they do not know, as daemons do, again and again: by close_range, by closefrom, one by one up to the limit, and by the system call itself. And
 * a child that takes everything out of its environment, LD_PRELOAD too, and begins programs without any.
 */
#include "feature.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void close_one_by_one(void)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int fd = 3; fd < (int)limit.rlim_cur && fd < 70000; fd++)
		close(fd);
}

static void close_all(unsigned int way)
{
	switch (way % 4) {
	case 0: CHECK(close_range(3, ~0u, 0) == 0 || errno == ENOSYS); break;
	case 1: closefrom(3); break;
	case 2: close_one_by_one(); break;
	default: CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0 || errno == ENOSYS);
	}
}

/* Under fermata what begins without an environment is of the job all the same. */
static void run(const char *check)
{
	char *argv[] = { "/bin/sh", "-c", (char *)check, NULL }, *none[] = { NULL };
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		execve(argv[0], argv, none);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void child(const char *check)
{
	CHECK(unsetenv("LD_PRELOAD") == 0 && clearenv() == 0);
	while (!feature_finished()) {
		close_all(3);
		run(check);
		CHECK(!getenv("LD_PRELOAD"));
		feature_work();
	}
	_exit(0);
}

int main(void)
{
	const char *check = getenv("FERMATA_JOBDIR") ? "test -n \"$FERMATA_JOBDIR\" && test -n \"$LD_PRELOAD\"" : "true";
	unsigned int step = 0;
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		child(check);
	feature_ready();
	do {
		int fd = open("/dev/zero", O_RDONLY);

		CHECK(fd >= 0);
		close_all(step++);
		CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
		feature_work();
	} while (feature_step());
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
