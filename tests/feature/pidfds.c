/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfds: of a child that runs, in an epoll set; of the parent, held by that child; of itself; of a zombie, shared with the child and non-blocking; of one that
 * has been waited for. Signals go through them, and
 * they tell of the end.
 */
#include "feature.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int own, running, dead, ended, set;
static volatile sig_atomic_t struck;

static int pidfd(pid_t pid, unsigned int flags)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, flags);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		feature_skip("the kernel has no pidfd_open here");
	CHECK(fd >= 0);
	return fd;
}

static int send_signal(int fd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}

static void on_signal(int sig)
{
	struck += sig == SIGUSR1;
}

static int has_ended(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Strikes its parent whenever it is struck. */
static void child(pid_t parent)
{
	int to = pidfd(parent, 0), seen = 0;

	for (;;) {
		while (struck == seen)
			feature_work();
		seen++;
		CHECK(!has_ended(to) && send_signal(to, SIGUSR1) == 0 && has_ended(dead) && !has_ended(own));
	}
}

static pid_t end_at_once(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(7);
	CHECK(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) == 0);
	return pid;
}

int main(void)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 77 };
	siginfo_t info;
	pid_t pid, gone;
	int before;

	CHECK(signal(SIGUSR1, on_signal) == SIG_DFL);
	own = pidfd(getpid(), 0);
	gone = end_at_once();
	dead = pidfd(gone, O_NONBLOCK);
	pid = end_at_once();
	ended = pidfd(pid, 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child(getppid());
	running = pidfd(pid, 0);
	set = epoll_create1(0);
	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, running, &e) == 0);
	feature_ready();
	do {
		before = struck;
		CHECK(!has_ended(running) && has_ended(dead) && fcntl(dead, F_GETFL) & O_NONBLOCK && epoll_wait(set, &e, 1, 0) == 0);
		CHECK(send_signal(running, SIGUSR1) == 0 && has_ended(ended) && send_signal(ended, 0) == -1 && errno == ESRCH);
		while (struck == before)
			feature_work();
	} while (feature_step());
	CHECK(waitid(P_PIDFD, (id_t)ended, &info, WEXITED) == -1 && errno == ECHILD);
	CHECK(waitid(P_PIDFD, (id_t)dead, &info, WEXITED) == 0 && info.si_pid == gone && info.si_status == 7);
	CHECK(send_signal(running, SIGKILL) == 0 && epoll_wait(set, &e, 1, 20000) == 1 && e.data.u64 == 77);
	CHECK(waitid(P_PIDFD, (id_t)running, &info, WEXITED) == 0 && info.si_pid == pid && info.si_status == SIGKILL);
	return 0;
}
