/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * signalfds: one with a queued real-time signal and its value waiting, one in which a thread is blocked, one with every signal
 * in its mask, which must not take what is not the program's.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

static int waiting, taken, every;
static int answer[2];

static int open_for(int a, int b, int flags)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, a);
	sigaddset(&set, b);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	fd = signalfd(-1, &set, flags);
	CHECK(fd >= 0);
	return fd;
}

static void *reader(void *arg)
{
	struct signalfd_siginfo info;
	int32_t value;

	do {
		CHECK(read(taken, &info, sizeof(info)) == (ssize_t)sizeof(info));
		CHECK(info.ssi_signo == (uint32_t)SIGRTMIN + 3 && info.ssi_code == SI_QUEUE);
		value = info.ssi_int;
		CHECK(write(answer[1], &value, sizeof(value)) == (ssize_t)sizeof(value));
	} while (value >= 0);
	return arg;
}

static void queue(int sig, int value)
{
	union sigval v = { .sival_int = value };

	CHECK(sigqueue(getpid(), sig, v) == 0);
}

static void check(int step)
{
	struct signalfd_siginfo info[3];
	int32_t value;

	CHECK(read(waiting, info, sizeof(info)) == (ssize_t)(2 * sizeof(info[0])));
	CHECK(info[0].ssi_signo == SIGUSR2 && info[1].ssi_signo == (uint32_t)SIGRTMIN + 1 && info[1].ssi_int == step);
	queue(SIGRTMIN + 1, step + 1);
	CHECK(raise(SIGUSR2) == 0);
	CHECK(read(every, info, sizeof(info)) == (ssize_t)(2 * sizeof(info[0])));
	queue(SIGRTMIN + 1, step + 1);
	CHECK(raise(SIGUSR2) == 0);
	queue(SIGRTMIN + 3, step);
	CHECK(read(answer[0], &value, sizeof(value)) == (ssize_t)sizeof(value) && value == step);
}

int main(void)
{
	pthread_t thread;
	sigset_t all;
	int step = 0;

	waiting = open_for(SIGUSR2, SIGRTMIN + 1, SFD_NONBLOCK | SFD_CLOEXEC);
	taken = open_for(SIGRTMIN + 3, SIGRTMIN + 3, 0);
	sigfillset(&all);
	sigdelset(&all, SIGRTMIN + 3);
	every = signalfd(-1, &all, SFD_NONBLOCK);
	CHECK(every >= 0 && pipe(answer) == 0);
	CHECK(fcntl(waiting, F_GETFD) == FD_CLOEXEC && fcntl(taken, F_GETFD) == 0);
	queue(SIGRTMIN + 1, 0);
	CHECK(raise(SIGUSR2) == 0);
	CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
	feature_ready();
	do {
		feature_work();
		check(step++);
	} while (feature_step());
	queue(SIGRTMIN + 3, -1);
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
