/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories that have been deleted: two processes stand in one, and descriptors lead to others, of which one has two descriptions and one no right to be read. */
#include "feature.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int deleted(const char *name, mode_t mode, int flags)
{
	int fd;

	CHECK(mkdir(name, 0700) == 0 && chmod(name, mode) == 0 && (fd = open(name, flags | O_CLOEXEC)) >= 0 && rmdir(name) == 0);
	return fd;
}

static void is_deleted(int fd, mode_t mode)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == mode && st.st_nlink == 0);
	CHECK(openat(fd, "file", O_CREAT | O_RDWR, 0600) == -1);
}

static void stands_nowhere(void)
{
	char path[4096];
	struct stat st;

	CHECK(stat(".", &st) == 0 && st.st_nlink == 0);
	CHECK(!getcwd(path, sizeof(path)) && errno == ENOENT);
	CHECK(readlink("/proc/self/cwd", path, sizeof(path)) > 10);
}

static void child(int end)
{
	char byte;

	CHECK(fork() >= 0); /* of which one is another's child then */
	while (read(end, &byte, 1) == -1 && errno == EAGAIN) {
		stands_nowhere();
		feature_work();
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

int main(void)
{
	struct stat one, other;
	int ends[2], status, list, path, again;
	pid_t pid;

	CHECK(pipe2(ends, O_NONBLOCK) == 0 && mkdir("stand", 0700) == 0);
	list = deleted("list", 0750, O_RDONLY | O_DIRECTORY);
	path = deleted("path", 0300, O_PATH);
	CHECK((again = openat(list, ".", O_RDONLY | O_DIRECTORY)) >= 0);
	if ((pid = fork()) == 0) {
		CHECK(close(ends[1]) == 0 && chdir("stand") == 0 && rmdir("../stand") == 0);
		child(ends[0]);
	}
	CHECK(pid > 0 && close(ends[0]) == 0);
	while (access("stand", F_OK) == 0)
		feature_work();
	feature_ready();
	do {
		feature_work();
		is_deleted(list, 0750);
		is_deleted(again, 0750);
		is_deleted(path, 0300);
		CHECK(fstat(list, &one) == 0 && fstat(again, &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev);
	} while (feature_step());
	CHECK(close(ends[1]) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
