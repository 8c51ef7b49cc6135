/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A debugger and what it debugs, both in the job: as gdb does it. The traced process calls marker(n), n = 1, 2, .., in which there is a breakpoint: each has to be met once, in its order,
 * with its registers; the debugger stops all other threads, steps over it, lets all go on. Meanwhile threads are born and end, processes are forked and let go, and another thread is sent
 * signals and faults, whose values and addresses are shown to the debugger first, then passed on. Stops that come while a thread is being stopped wait for their turn, as in gdb.
 * Debug registers hold what they held.
 */
#include "feature.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { TASKS = 64, OPTIONS = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK };

static struct {
	volatile uint64_t marked, signals, faults; /* by the traced: so many have been begun */
	volatile int finish;
} *shared;

/* ---- the traced process ---- */
static char *page;
static volatile uint64_t signals_taken, faults_taken;

__attribute__((noinline, noclone)) static void marker(uint64_t n)
{
	__asm__ volatile("" ::"r"(n) : "memory");
	CHECK(n == shared->marked);
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	CHECK(info->si_code == SI_QUEUE && (uint64_t)info->si_value.sival_ptr == shared->signals);
	signals_taken++;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	CHECK(info->si_code == SEGV_ACCERR && info->si_addr == page + shared->faults % 4096);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
	faults_taken++;
}

static void *work(void *arg)
{
	struct chain chain = { 0 };

	while (!shared->finish) {
		chain_step(&chain, 1000);
		shared->signals++;
		CHECK(pthread_sigqueue(pthread_self(), SIGUSR1, (union sigval){ .sival_ptr = (void *)shared->signals }) == 0);
		CHECK(signals_taken == shared->signals);
		CHECK(mprotect(page, 4096, PROT_NONE) == 0);
		shared->faults++;
		page[shared->faults % 4096] = 1;
		CHECK(faults_taken == shared->faults);
		usleep(500); /* a call that stops interrupt, and half of them have to */
	}
	chain_check(&chain);
	return arg;
}

static void *nothing(void *arg)
{
	return arg;
}

static void make_thread(void)
{
	pthread_t thread;
	void *ret;

	CHECK(pthread_create(&thread, NULL, nothing, page) == 0);
	CHECK(pthread_join(thread, &ret) == 0 && ret == page);
}

static void make_process(void)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid)
		_exit(7);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void be_traced(void)
{
	struct sigaction usr1 = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO }, segv = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	pthread_t worker;

	CHECK(sigaction(SIGUSR1, &usr1, NULL) == 0 && sigaction(SIGSEGV, &segv, NULL) == 0);
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
	while (!shared->finish) {
		shared->marked++;
		marker(shared->marked);
		if (shared->marked % 8 == 0)
			make_thread();
		if (shared->marked % 64 == 0)
			make_process();
		usleep(1000); /* as in work() */
	}
	CHECK(pthread_join(worker, NULL) == 0);
	_exit(5);
}

/* ---- the debugger ---- */
static pid_t pid;
static uint64_t met, passed_signals, passed_faults;
static long under; /* what the breakpoint lies on */

static struct task {
	pid_t tid;
	int stands, asked; /* a SIGSTOP is on its way to it */
	int forked;	   /* no thread of it */
	int waits;	   /* the status of a stop that has not had its turn; 0: none */
} tasks[TASKS];

static struct task *task_of(pid_t tid)
{
	for (int i = 0; i < TASKS; i++)
		if (tasks[i].tid == tid)
			return &tasks[i];
	return NULL;
}

static struct task *task_new(pid_t tid)
{
	struct task *t = task_of(0);

	CHECK(t != NULL);
	*t = (struct task){ .tid = tid };
	return t;
}

static void go_on(struct task *t, int sig)
{
	t->stands = 0;
	CHECK(ptrace(PTRACE_CONT, t->tid, NULL, (void *)(long)sig) == 0);
}

static void put_breakpoint(int there)
{
	long word = there ? (under & ~0xffl) | 0xcc : under;

	CHECK(ptrace(PTRACE_POKETEXT, pid, (void *)marker, (void *)word) == 0);
}

/* False: it runs still. */
static int await_stop(struct task *t)
{
	int status;
	pid_t r = waitpid(t->tid, &status, __WALL | WNOHANG);

	if (r == 0)
		return 0;
	CHECK(r == t->tid);
	t->stands = WIFSTOPPED(status);
	if (!t->stands)
		t->tid = 0;
	else if (status >> 8 == SIGSTOP)
		t->asked = 0;
	else
		t->waits = status;
	return 1;
}

/* All but @but, and whatever they stand for waits. The end of the first thread cannot be waited for before that of the others: so they are asked in turns. */
static void stop_others(const struct task *but)
{
	int left = 1;

	for (struct task *t = tasks; t < tasks + TASKS; t++)
		if (t->tid && t != but && !t->stands && !t->asked && syscall(SYS_tgkill, pid, t->tid, SIGSTOP) == 0)
			t->asked = 1;
	while (left) {
		left = 0;
		for (struct task *t = tasks; t < tasks + TASKS; t++)
			if (t->tid && t != but && !t->stands)
				left |= !await_stop(t);
		if (left)
			sched_yield();
	}
}

/* Others may still tell of what they stand for; whoever ends has been killed. */
static void step(struct task *t)
{
	int status;
	pid_t tid;

	CHECK(ptrace(PTRACE_SINGLESTEP, t->tid, NULL, NULL) == 0);
	while ((tid = waitpid(-1, &status, __WALL)) != t->tid) {
		struct task *other = task_of(tid);

		CHECK(WIFSTOPPED(status));
		if (!other)
			other = task_new(tid);
		other->stands = 1;
		other->asked &= status >> 8 != SIGSTOP;
		other->waits = status >> 8 == SIGSTOP ? 0 : status;
	}
	CHECK(WIFSTOPPED(status) && status >> 8 == SIGTRAP);
}

static void meet_breakpoint(struct task *t, struct user_regs_struct *regs)
{
	siginfo_t info;

	met++;
	CHECK(regs->rip == (uint64_t)marker + 1 && regs->rdi == met && shared->marked == met);
	stop_others(t);
	put_breakpoint(0);
	regs->rip--;
	CHECK(ptrace(PTRACE_SETREGS, t->tid, NULL, regs) == 0);
	step(t);
	CHECK(ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info) == 0 && info.si_code == TRAP_TRACE);
	CHECK(ptrace(PTRACE_GETREGS, t->tid, NULL, regs) == 0);
	CHECK(regs->rip > (uint64_t)marker && regs->rip < (uint64_t)marker + 16 && regs->rdi == met);
	CHECK(ptrace(PTRACE_PEEKUSER, t->tid, offsetof(struct user, u_debugreg[0]), NULL) == (long)&under);
	put_breakpoint(1);
	for (struct task *o = tasks; o < tasks + TASKS; o++)
		if (o->tid && o->stands && !o->waits && !o->forked)
			go_on(o, 0);
}

/* A process that was forked. It may have been told of before the fork was. */
static void let_go(pid_t number)
{
	struct task *t = task_of(number);
	int status;

	if (t)
		t->tid = 0;
	else
		CHECK(waitpid(number, &status, __WALL) == number && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_POKETEXT, number, (void *)marker, (void *)under) == 0);
	CHECK(ptrace(PTRACE_DETACH, number, NULL, NULL) == 0);
}

static void take_event(struct task *t, int event)
{
	unsigned long number = 0;

	CHECK(ptrace(PTRACE_GETEVENTMSG, t->tid, NULL, &number) == 0 && number != 0);
	CHECK(event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK);
	if (event == PTRACE_EVENT_CLONE && !task_of((pid_t)number) && syscall(SYS_tgkill, pid, (pid_t)number, 0) == 0) /* its end may have been told before its birth had its turn */
		task_new((pid_t)number);
	if (event == PTRACE_EVENT_FORK)
		let_go((pid_t)number);
	go_on(t, 0);
}

static void take_stop(struct task *t, int status)
{
	int sig = WSTOPSIG(status), pass = 0;
	struct user_regs_struct regs;
	siginfo_t info;

	t->stands = 1;
	if (syscall(SYS_tgkill, pid, t->tid, 0) < 0) { /* no thread: whose fork is still to be told */
		t->forked = 1;
		return;
	}
	if (status >> 16) {
		take_event(t, status >> 16);
		return;
	}
	CHECK(ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info) == 0 && info.si_signo == sig);
	if (sig == SIGTRAP) {
		CHECK(info.si_code == SI_KERNEL && ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) == 0);
		meet_breakpoint(t, &regs);
		return;
	}
	if (sig == SIGSTOP) {
		t->asked = 0;
	} else {
		pass = sig;
		if (sig == SIGUSR1)
			CHECK((uint64_t)info.si_value.sival_ptr == ++passed_signals);
		else if (sig == SIGSEGV)
			CHECK(((uint64_t)info.si_addr & 4095) == ++passed_faults % 4096);
		else
			CHECK(sig == SIGCHLD);
	}
	go_on(t, pass);
}

/* The next stop or end: of those that wait, else of any. */
static struct task *next_stop(int *ret_status)
{
	struct task *t;
	pid_t tid;

	for (t = tasks; t < tasks + TASKS; t++)
		if (t->tid && t->waits) {
			*ret_status = t->waits;
			t->waits = 0;
			return t;
		}
	tid = waitpid(-1, ret_status, __WALL);
	CHECK(tid > 0);
	t = task_of(tid);
	return t ? t : task_new(tid);
}

static void trace(void)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)OPTIONS) == 0);
	errno = 0;
	under = ptrace(PTRACE_PEEKTEXT, pid, (void *)marker, NULL);
	CHECK(errno == 0);
	CHECK(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[0]), &under) == 0);
	put_breakpoint(1);
	go_on(task_new(pid), 0);
}

static void *debug(void *arg)
{
	uint64_t steps = 0;
	int status = 0;

	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		be_traced();
	trace();
	feature_ready();
	for (;;) {
		struct task *t = next_stop(&status);

		if (WIFSTOPPED(status))
			take_stop(t, status);
		else if (t->tid == pid)
			break;
		else
			t->tid = 0;
		if (met > steps) {
			steps = met;
			if (!feature_step())
				shared->finish = 1;
		}
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK(met == shared->marked && passed_signals == shared->signals && passed_faults == shared->faults);
	return arg;
}

/* by_thread: another thread than the first traces. */
int main(int argc, char **argv)
{
	pthread_t thread;

	if (ptrace(PTRACE_CONT, 0, NULL, NULL) == -1 && errno != ESRCH)
		feature_skip("ptrace is refused here");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	if (argc > 1 && strcmp(argv[1], "by_thread") == 0)
		CHECK(pthread_create(&thread, NULL, debug, NULL) == 0 && pthread_join(thread, NULL) == 0);
	else
		debug(NULL);
	return 0;
}
