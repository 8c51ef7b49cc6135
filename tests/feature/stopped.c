/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that are stopped over checkpoints, and stay so, until main continues them:
 *
 *   told       by SIGSTOP, which main has waited for; four threads
 *   untold     by SIGSTOP, which main waits for at the end only
 *   suspended  by SIGTSTP, as from a terminal: not waited for either
 *   leaderless its first thread has ended
 *   outer      and its child, inner: both stopped, the child first, which outer has waited for
 *   orphan     main has it of a process that has ended
 *   flipped    main stops it and continues it all the time
 *
 * Each counts in memory that is shared: while one is stopped nothing of it may move. Each SIGCONT and each SIGCHLD of a stop comes once.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { TOLD, UNTOLD, SUSPENDED, LEADERLESS, OUTER, INNER, ORPHAN, FLIPPED, COUNT, THREADS = 4 };

struct worker {
	volatile pid_t pid;
	volatile uint64_t moves[THREADS];
	volatile unsigned int continued;
};

static struct worker *workers; /* shared; one more says, by its pid, that all may end */
static struct worker *self;
static volatile sig_atomic_t told_of[COUNT];

static void on_continue(int sig)
{
	(void)sig;
	self->continued++;
}

static void on_child(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	for (int i = 0; info->si_code == CLD_STOPPED && i < COUNT; i++)
		if (workers[i].pid == info->si_pid)
			told_of[i]++;
}

static void *move(void *arg)
{
	while (!workers[COUNT].pid) {
		++*(volatile uint64_t *)arg;
		feature_work();
	}
	return NULL;
}

static void work(int which)
{
	pthread_t threads[THREADS];

	self = &workers[which];
	CHECK(signal(SIGCONT, on_continue) != SIG_ERR);
	for (int i = 1; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, move, (void *)&self->moves[i]) == 0);
	self->pid = getpid();
	if (which == LEADERLESS)
		pthread_exit(NULL);
	move((void *)&self->moves[0]);
	for (int i = 1; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (which != OUTER)
		exit(10 + which);
}

static pid_t forked(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	return pid;
}

static void await(int which)
{
	while (!workers[which].pid || !workers[which].moves[THREADS - 1])
		usleep(1000);
}

static void stop(int which, int sig)
{
	siginfo_t info;
	pid_t pid = workers[which].pid;

	CHECK(kill(pid, sig) == 0);
	CHECK(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT) == 0 && info.si_code == CLD_STOPPED && info.si_status == sig);
}

static void take(int which, int sig)
{
	siginfo_t info;

	CHECK(waitid(P_PID, (id_t)workers[which].pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == workers[which].pid);
	CHECK(info.si_code == CLD_STOPPED && info.si_status == sig);
}

static void take_none(int which)
{
	siginfo_t info = { 0 };

	CHECK(waitid(P_PID, (id_t)workers[which].pid, &info, WSTOPPED | WNOHANG) == 0 && !info.si_pid);
}

static void end_of(int which)
{
	int status;

	CHECK(waitpid(workers[which].pid, &status, 0) == workers[which].pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (which == LEADERLESS ? 0 : 10 + which));
	CHECK(workers[which].continued == 1);
}

static void outer(void)
{
	if (forked() == 0)
		work(INNER);
	await(INNER);
	stop(INNER, SIGSTOP);
	take(INNER, SIGSTOP);
	work(OUTER);
	take_none(INNER);
	CHECK(kill(workers[INNER].pid, SIGCONT) == 0);
	end_of(INNER);
	exit(10 + OUTER);
}

static void make(int which)
{
	int between = which == ORPHAN;
	pid_t pid = forked();

	if (pid == 0) {
		if (which == SUSPENDED)
			CHECK(setpgid(0, 0) == 0); /* its group has a parent outside, in the session: it is not orphaned */
		if (between && forked())
			_exit(0);
		if (which == OUTER)
			outer();
		work(which);
	}
	if (between)
		CHECK(waitpid(pid, NULL, 0) == pid);
	await(which);
}

static uint64_t moves(int which)
{
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++)
		sum += workers[which].moves[i];
	return sum;
}

/* The news of it comes once, however long the checkpoint takes that comes between. */
static void flip(int round)
{
	uint64_t before;

	stop(FLIPPED, SIGSTOP);
	if (round % 2)
		take(FLIPPED, SIGSTOP);
	before = moves(FLIPPED);
	feature_work();
	CHECK(moves(FLIPPED) == before);
	while (told_of[FLIPPED] != round + 1)
		feature_work();
	CHECK(kill(workers[FLIPPED].pid, SIGCONT) == 0);
	while (moves(FLIPPED) == before || workers[FLIPPED].continued != (unsigned int)round + 1)
		feature_work();
}

int main(void)
{
	const struct sigaction sa = { .sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART };
	uint64_t before[COUNT];
	int round = 0;

	workers = mmap(NULL, (COUNT + 1) * sizeof(*workers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(workers != MAP_FAILED);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	CHECK(sigaction(SIGCHLD, &sa, NULL) == 0);
	for (int i = 0; i < COUNT; i++)
		if (i != INNER)
			make(i);
	for (int i = 0; i < FLIPPED; i++) {
		if (i == INNER)
			continue;
		stop(i, i == SUSPENDED ? SIGTSTP : SIGSTOP);
		while (!told_of[i])
			usleep(1000);
		if (i != UNTOLD && i != SUSPENDED)
			take(i, SIGSTOP);
	}
	for (int i = 0; i < FLIPPED; i++)
		before[i] = moves(i);
	feature_ready();
	do {
		flip(round++);
		for (int i = 0; i < FLIPPED; i++)
			CHECK(moves(i) == before[i]);
	} while (feature_step());
	workers[COUNT].pid = 1;
	for (int i = 0; i < FLIPPED; i++) {
		if (i == INNER)
			continue;
		CHECK(told_of[i] == 1 && workers[i].continued == 0);
		if (i == UNTOLD || i == SUSPENDED)
			take(i, i == SUSPENDED ? SIGTSTP : SIGSTOP);
		take_none(i);
		CHECK(kill(workers[i].pid, SIGCONT) == 0);
		end_of(i);
	}
	workers[FLIPPED].continued = 1;
	end_of(FLIPPED);
	return 0;
}
