/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that is careful to have one thread, by the links of its directory of tasks, before it forks or confines itself (Chromium's zygote): two of its own and one a thread. It asks by
 * each call there is for it; with a second thread; in children of fork, vfork and of a bare clone.
 */
#include "feature.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LIMIT_NS 10000000000u

static int proc, tasks;

static unsigned int links(void)
{
	struct statx x;
	struct stat st;
	nlink_t n;

	CHECK(!stat("/proc/self/task", &st));
	n = st.st_nlink;
	CHECK(!lstat("/proc/self/task/", &st) && st.st_nlink == n);
	CHECK(!fstatat(proc, "self/task/", &st, 0) && st.st_nlink == n);
	CHECK(!statx(proc, "self/task", 0, STATX_BASIC_STATS, &x) && x.stx_nlink == n);
	return (unsigned int)n;
}

/* A thread that has been joined is the kernel's for a moment yet. */
static void await_links(unsigned int want)
{
	uint64_t until = feature_now(CLOCK_MONOTONIC) + LIMIT_NS;

	for (;;) {
		struct stat st;

		CHECK(!stat("/proc/self/task", &st));
		if (st.st_nlink == want)
			return;
		CHECK(feature_now(CLOCK_MONOTONIC) < until);
		sched_yield();
	}
}

static void *second(void *arg)
{
	struct stat st;

	(void)arg;
	CHECK(links() == 4 && !fstat(tasks, &st) && st.st_nlink == 4);
	return NULL;
}

static void in_child(pid_t pid, int links_are_right)
{
	int status;

	CHECK(pid >= 0);
	if (!pid)
		_exit(!links_are_right);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void children(void)
{
	struct stat st;
	pid_t pid;

	pid = fork();
	in_child(pid, pid || links() == 3);
	pid = vfork();
	if (!pid)
		_exit(stat("/proc/self/task", &st) || st.st_nlink != 3);
	in_child(pid, 1);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	in_child(pid, pid || links() == 3);
}

int main(void)
{
	struct stat st;
	pthread_t t;

	proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(proc >= 0 && tasks >= 0);
	feature_ready();
	while (feature_step()) {
		CHECK(links() == 3 && !fstat(tasks, &st) && st.st_nlink == 3);
		CHECK(!pthread_create(&t, NULL, second, NULL) && !pthread_join(t, NULL));
		await_links(3);
		children();
	}
	return 0;
}
