/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children that were stopped and go on, over checkpoints. Whose parent has not waited for that (WCONTINUED) can do so, once; nothing else is told again.
 *
 *   untold   main has not waited; four threads
 *   told     main has
 *   holder   not waited; the SIGCONT itself is blocked, and waits
 *   blocker  not waited; has been sent SIGTSTP since, which is blocked, and waits
 *   outer    and its child, inner: not waited for either
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { UNTOLD, TOLD, HOLDER, BLOCKER, OUTER, INNER, COUNT, THREADS = 4 };

struct worker {
	volatile pid_t pid, parent;
	volatile uint64_t moves[THREADS];
	volatile unsigned int continued; /* SIGCONT has come so often */
	volatile int to_end;
};

static struct worker *workers; /* shared */
static struct worker *self;
static int news[2]; /* a pipe: a byte when a worker's threads move, and when SIGCONT has come */
static volatile sig_atomic_t stops[COUNT], goes[COUNT]; /* SIGCHLD of them */

static void on_continue(int sig)
{
	(void)sig;
	self->continued++;
	CHECK(write(news[1], "", 1) == 1);
}

static void on_child(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	for (int i = 0; i < COUNT; i++)
		if (workers[i].pid == info->si_pid) {
			stops[i] += info->si_code == CLD_STOPPED;
			goes[i] += info->si_code == CLD_CONTINUED;
		}
}

static void *move(void *arg)
{
	while (!self->to_end) {
		++*(volatile uint64_t *)arg;
		feature_work();
	}
	return NULL;
}

/* A signal that waits, from the parent. */
static void waits(int sig)
{
	const struct timespec now = { 0 };
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, sig);
	CHECK(sigtimedwait(&set, &info, &now) == sig && info.si_pid == self->parent);
	CHECK(sigtimedwait(&set, &info, &now) < 0 && errno == EAGAIN);
}

static void work(int which)
{
	pthread_t threads[THREADS];
	sigset_t blocked;

	self = &workers[which];
	self->parent = getppid();
	sigemptyset(&blocked);
	if (which == HOLDER || which == BLOCKER)
		sigaddset(&blocked, which == HOLDER ? SIGCONT : SIGTSTP);
	CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
	CHECK(signal(SIGCONT, on_continue) != SIG_ERR);
	for (int i = 1; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, move, (void *)&self->moves[i]) == 0);
	for (int i = 1; i < THREADS; i++)
		while (!self->moves[i])
			feature_work();
	self->pid = getpid();
	CHECK(write(news[1], "", 1) == 1);
	move((void *)&self->moves[0]);
	for (int i = 1; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(self->continued == (which != HOLDER));
	if (which == HOLDER)
		waits(SIGCONT);
	if (which == BLOCKER)
		waits(SIGTSTP);
}

static uint64_t moves(int which)
{
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++)
		sum += workers[which].moves[i];
	return sum;
}

static void await_moves(int which)
{
	uint64_t before = moves(which);

	while (moves(which) < before + 10)
		feature_work();
}

static bool is_told(int which, int flags)
{
	siginfo_t info = { 0 };

	CHECK(waitid(P_PID, (id_t)workers[which].pid, &info, flags | WNOHANG) == 0);
	CHECK(!info.si_pid || (info.si_pid == workers[which].pid && info.si_code == (flags & WCONTINUED ? CLD_CONTINUED : CLD_STOPPED)));
	return info.si_pid;
}

static void await_news(void)
{
	char c;

	CHECK(read(news[0], &c, 1) == 1);
}

/* The child has done so, and its SIGCHLD has come. */
static void await(int which, int flag, volatile sig_atomic_t *came)
{
	sigset_t child, before;
	siginfo_t info;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	CHECK(waitid(P_PID, (id_t)workers[which].pid, &info, flag | WNOWAIT) == 0);
	CHECK(sigprocmask(SIG_BLOCK, &child, &before) == 0);
	while (!*came)
		sigsuspend(&before);
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static void make(int which, void (*body)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		if (body)
			body();
		else
			work(which);
		exit(10 + which);
	}
	await_news();
	CHECK(kill(pid, SIGSTOP) == 0);
	await(which, WSTOPPED, &stops[which]);
	CHECK(is_told(which, WSTOPPED));
	CHECK(kill(pid, SIGCONT) == 0);
	await(which, WCONTINUED, &goes[which]);
	if (which != HOLDER)
		await_news();
	if (which == TOLD)
		CHECK(is_told(which, WCONTINUED));
	if (which == BLOCKER)
		CHECK(kill(pid, SIGTSTP) == 0);
	await_moves(which);
}

static void check(int which)
{
	CHECK(is_told(which, WCONTINUED | WNOWAIT) == (which != TOLD));
	CHECK(!is_told(which, WSTOPPED | WNOWAIT));
	CHECK(stops[which] == 1 && goes[which] == 1 && workers[which].continued == (which != HOLDER));
}

static void end_of(int which)
{
	int status;

	CHECK(is_told(which, WCONTINUED) == (which != TOLD));
	CHECK(!is_told(which, WCONTINUED));
	workers[which].to_end = 1;
	CHECK(waitpid(workers[which].pid, &status, 0) == workers[which].pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 10 + which);
}

static void outer(void)
{
	const int ours[2] = { news[0], news[1] };

	CHECK(pipe(news) == 0); /* inner's */
	make(INNER, NULL);
	memcpy(news, ours, sizeof(ours));
	work(OUTER);
	end_of(INNER);
}

int main(void)
{
	const struct sigaction sa = { .sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART };

	workers = mmap(NULL, COUNT * sizeof(*workers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(workers != MAP_FAILED && pipe(news) == 0);
	CHECK(sigaction(SIGCHLD, &sa, NULL) == 0);
	for (int i = 0; i < INNER; i++)
		make(i, i == OUTER ? outer : NULL);
	feature_ready();
	do
		for (int i = 0; i < INNER; i++) {
			check(i);
			await_moves(i);
		}
	while (feature_step());
	for (int i = 0; i < INNER; i++)
		end_of(i);
	return 0;
}
