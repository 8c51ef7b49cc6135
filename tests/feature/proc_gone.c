/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files below /proc of processes that have ended, as a debugger and a supervisor hold them: the memory of a zombie; memory, status and directory of one that has been
 * waited for; and the memory of a process that runs, which is still its, also by
 * process_vm_readv.
 */
#include "feature.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char shown[8] = "shown";

static pid_t begin(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static int open_of(pid_t pid, const char *form, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), form, pid, pid);
	fd = open(path, flags | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static void check_memory(int fd, ssize_t want)
{
	char c[8] = "";

	CHECK(pread(fd, c, sizeof(c), (off_t)(uintptr_t)shown) == want && (!want || strcmp(c, shown) == 0));
}

static void check_by_pid(pid_t pid)
{
	char c[8] = "";
	struct iovec to = { c, sizeof(c) }, from = { shown, sizeof(shown) };

	CHECK((process_vm_readv(pid, &to, 1, &from, 1, 0) == sizeof(c) && strcmp(c, shown) == 0) || errno == ENOSYS || errno == EPERM);
}

int main(void)
{
	int zombie_memory, zombie_task, gone_memory, gone_status, directory, memory;
	pid_t zombie = begin(), gone = begin(), alive = begin();
	struct stat st;
	char c;

	zombie_memory = open_of(zombie, "/proc/%d/mem", O_RDWR);
	zombie_task = open_of(zombie, "/proc/%d/task/%d/mem", O_RDONLY);
	gone_memory = open_of(gone, "/proc/%d/mem", O_RDONLY);
	gone_status = open_of(gone, "/proc/%d/status", O_RDONLY);
	directory = open_of(gone, "/proc/%d", O_RDONLY | O_DIRECTORY);
	memory = open_of(alive, "/proc/%d/mem", O_RDONLY);
	CHECK(kill(zombie, SIGKILL) == 0 && kill(gone, SIGKILL) == 0);
	CHECK(waitpid(gone, NULL, 0) == gone && waitid(P_PID, (id_t)zombie, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) == 0);
	feature_ready();
	do {
		feature_work();
		check_memory(zombie_memory, 0);
		check_memory(zombie_task, 0);
		check_memory(gone_memory, 0);
		check_memory(memory, sizeof(shown));
		check_by_pid(alive);
		CHECK(pread(gone_status, &c, 1, 0) == -1 && errno == ESRCH);
		CHECK(openat(directory, "stat", O_RDONLY) == -1 && fstat(directory, &st) == 0 && S_ISDIR(st.st_mode));
	} while (feature_step());
	CHECK((fcntl(zombie_memory, F_GETFL) & O_ACCMODE) == O_RDWR);
	CHECK(waitpid(zombie, NULL, 0) == zombie && kill(alive, SIGKILL) == 0 && waitpid(alive, NULL, 0) == alive);
	return 0;
}
