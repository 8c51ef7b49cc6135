/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that were forked by a signal's handler, wherever the signal came: mostly in the middle of a call that asks for clocks, which parent and child then end, each for itself. Every child goes on
 * with the same calls until the parent has ended the pipe.
 */
#include "feature.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { CHILDREN = 24 };

static volatile sig_atomic_t children, is_child;
static pid_t pids[CHILDREN];
static int ends[2];

static void on_alarm(int sig)
{
	pid_t pid;

	(void)sig;
	if (is_child || children == CHILDREN)
		return;
	pid = fork();
	if (pid == 0)
		is_child = 1;
	else
		pids[children++] = pid;
}

static void ask(void)
{
	struct rusage u;
	struct stat st;

	CHECK(clock() != (clock_t)-1 && getrusage(RUSAGE_SELF, &u) == 0 && feature_now(CLOCK_THREAD_CPUTIME_ID) > 0 && stat("/", &st) == 0);
}

static void child(void)
{
	struct pollfd p = { .fd = ends[0], .events = POLLIN };
	char byte;

	close(ends[1]);
	while (poll(&p, 1, 1) == 0)
		ask();
	_exit(read(ends[0], &byte, 1) != 0);
}

static void ask_on(void)
{
	for (int i = 0; i < 1000; i++) {
		ask();
		if (is_child)
			child();
	}
}

int main(void)
{
	struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { 0 };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	int status;

	CHECK(pipe(ends) == 0 && sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (children < CHILDREN)
		ask_on();
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	feature_ready();
	do {
		ask_on();
		feature_work();
	} while (feature_step());
	CHECK(close(ends[1]) == 0);
	for (int i = 0; i < CHILDREN; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
