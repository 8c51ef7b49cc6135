/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is told by a signal of what can be read: the process by SIGIO, another thread by a real-time signal with the descriptor's number, a child of a descriptor that it shares. Each is told of
 * each byte. One that has an owner and is not to tell stays so.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int to_process[2], to_thread[2], to_child[2], silent[2], answers[2];
static volatile sig_atomic_t told;
static sigset_t io, number;
static pid_t child;
static pid_t thread_tid;
static pthread_barrier_t started;

static void on_io(int sig)
{
	told++;
}

static void own(int fd, enum __pid_type type, pid_t pid, int sig, int async)
{
	struct f_owner_ex owner = { type, pid };

	CHECK(fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETSIG, sig) == 0);
	CHECK(fcntl(fd, F_SETFL, (fcntl(fd, F_GETFL) & ~O_ASYNC) | (async ? O_ASYNC : 0)) == 0);
}

static void owner_check(int fd, enum __pid_type type, pid_t pid, int sig, int async)
{
	struct f_owner_ex owner = { 0 };

	CHECK(fcntl(fd, F_GETOWN_EX, &owner) == 0 && owner.type == type && owner.pid == pid);
	CHECK(fcntl(fd, F_GETSIG) == sig && !(fcntl(fd, F_GETFL) & O_ASYNC) == !async);
}

static void say(int fd, char c)
{
	CHECK(write(fd, &c, 1) == 1);
}

static char hear(int fd)
{
	char c;
	ssize_t n;

	while ((n = read(fd, &c, 1)) < 0 && errno == EINTR)
		;
	CHECK(n == 1);
	return c;
}

/* Its signal bears the number of the descriptor. */
static void *thread(void *arg)
{
	siginfo_t info;
	char c;

	thread_tid = gettid();
	pthread_barrier_wait(&started);
	do {
		while (sigwaitinfo(&number, &info) < 0)
			CHECK(errno == EINTR);
		CHECK(info.si_fd == to_thread[0] && info.si_code == POLL_IN);
		c = hear(to_thread[0]);
		say(answers[1], c);
	} while (c != 'q');
	return arg;
}

static void child_main(void)
{
	siginfo_t info;
	char c;

	say(answers[1], 'r');
	do {
		while (sigwaitinfo(&io, &info) < 0)
			CHECK(errno == EINTR);
		c = hear(to_child[0]);
		say(answers[1], c);
	} while (c != 'q');
	_exit(0);
}

static void round_trips(char c)
{
	sigset_t before;

	say(to_thread[1], c);
	CHECK(hear(answers[0]) == c);
	say(to_child[1], c);
	CHECK(hear(answers[0]) == c);
	CHECK(pthread_sigmask(SIG_BLOCK, &io, &before) == 0);
	told = 0;
	say(to_process[1], c);
	while (!told)
		sigsuspend(&before);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0 && hear(to_process[0]) == c);
}

static void make(void)
{
	CHECK(pipe(to_thread) == 0 && pipe(to_child) == 0 && pipe(answers) == 0 && pipe(silent) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, to_process) == 0);
	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	sigemptyset(&number);
	sigaddset(&number, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &io, NULL) == 0 && pthread_sigmask(SIG_BLOCK, &number, NULL) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		child_main();
	CHECK(hear(answers[0]) == 'r');
}

int main(void)
{
	pthread_t t;
	int status;

	make();
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0 && pthread_create(&t, NULL, thread, NULL) == 0);
	pthread_barrier_wait(&started);
	own(to_thread[0], F_OWNER_TID, thread_tid, SIGRTMIN + 3, 1);
	own(to_child[0], F_OWNER_PID, child, 0, 1);
	own(to_process[0], F_OWNER_PGRP, getpgrp(), 0, 0);
	own(to_process[0], F_OWNER_PID, getpid(), SIGIO, 1);
	own(silent[0], F_OWNER_PID, getpid(), SIGUSR1, 0);
	CHECK(signal(SIGIO, on_io) != SIG_ERR && pthread_sigmask(SIG_UNBLOCK, &io, NULL) == 0);
	feature_ready();
	do {
		owner_check(to_thread[0], F_OWNER_TID, thread_tid, SIGRTMIN + 3, 1);
		owner_check(to_child[0], F_OWNER_PID, child, 0, 1);
		owner_check(to_process[0], F_OWNER_PID, getpid(), SIGIO, 1);
		owner_check(silent[0], F_OWNER_PID, getpid(), SIGUSR1, 0);
		round_trips('a');
		say(silent[1], 'x');
		CHECK(hear(silent[0]) == 'x');
		feature_work();
	} while (feature_step());
	round_trips('q');
	CHECK(pthread_join(t, NULL) == 0 && waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
