/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel knows of the program's signals: an action for each number with its flags and mask, masks and alternate stack of
 * each thread, signals that are pending for the process and for a thread.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>

static volatile sig_atomic_t ran_on_altstack, got[65];
static unsigned char *altstack;
static pthread_barrier_t started;
static volatile int stop;

static void handler(int sig, siginfo_t *info, void *context)
{
	unsigned char here;

	got[sig]++;
	ran_on_altstack = &here >= altstack && &here < altstack + 65536;
}

/* SIGKILL and SIGSTOP have no action; libc keeps the first real-time ones to itself, others may keep the last. */
static int is_ours(int sig)
{
	return sig != SIGKILL && sig != SIGSTOP && sig != SIGABRT && (sig < 32 || (sig >= SIGRTMIN && sig < SIGRTMAX - 3));
}

static int action_flags(int sig)
{
	return SA_SIGINFO | (sig % 2 ? SA_RESTART : 0) | (sig % 3 ? SA_ONSTACK : 0) | (sig % 5 ? 0 : SA_NODEFER);
}

static void actions_set(void)
{
	for (int sig = 1; sig < SIGRTMAX; sig++) {
		struct sigaction sa = { .sa_flags = action_flags(sig), .sa_sigaction = handler };

		if (!is_ours(sig))
			continue;
		sigemptyset(&sa.sa_mask);
		sigaddset(&sa.sa_mask, sig % 31 + 1);
		CHECK(sigaction(sig, &sa, NULL) == 0);
	}
}

static void actions_check(void)
{
	for (int sig = 1; sig < SIGRTMAX; sig++) {
		struct sigaction sa;

		if (!is_ours(sig))
			continue;
		CHECK(sigaction(sig, NULL, &sa) == 0);
		CHECK(sa.sa_sigaction == handler);
		CHECK((sa.sa_flags & ~0x04000000) == action_flags(sig));
		for (int other = 1; other < 32; other++)
			CHECK(other == SIGKILL || other == SIGSTOP ||
			      sigismember(&sa.sa_mask, other) == (other == sig % 31 + 1));
	}
}

/* A thread that blocks everything there is. */
static void *block_all(void *arg)
{
	sigset_t all, now;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
	pthread_barrier_wait(&started);
	while (!stop) {
		feature_work();
		CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
		for (int sig = 1; sig < SIGRTMAX; sig++)
			if (is_ours(sig))
				CHECK(sigismember(&now, sig) == 1);
		CHECK(sigpending(&now) == 0);
		CHECK(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGWINCH) == 0);
	}
	sigemptyset(&now);
	sigaddset(&now, SIGUSR2);
	CHECK(sigtimedwait(&now, NULL, &(struct timespec){ 0 }) == SIGUSR2);
	return arg;
}

int main(void)
{
	sigset_t blocked, now;
	stack_t ss, old;
	pthread_t thread;
	int before;

	altstack = malloc(65536);
	ss = (stack_t){ .ss_sp = altstack, .ss_size = 65536 };
	CHECK(sigaltstack(&ss, NULL) == 0);
	actions_set();
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigaddset(&blocked, SIGRTMIN + 1);
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0);
	CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, block_all, NULL) == 0);
	pthread_barrier_wait(&started);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(kill(getpid(), SIGRTMIN + 1) == 0);
	feature_ready();
	do {
		feature_work();
		actions_check();
		CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
		for (int sig = 1; sig < SIGRTMAX; sig++)
			if (is_ours(sig))
				CHECK(sigismember(&now, sig) == sigismember(&blocked, sig));
		CHECK(sigpending(&now) == 0);
		CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGRTMIN + 1) && !sigismember(&now, SIGHUP));
		CHECK(sigaltstack(NULL, &old) == 0);
		CHECK(old.ss_sp == altstack && old.ss_size == 65536 && old.ss_flags == 0);
		before = got[SIGHUP];
		CHECK(raise(SIGHUP) == 0);
		CHECK(got[SIGHUP] == before + 1 && ran_on_altstack);
		CHECK(raise(SIGQUIT) == 0 && !ran_on_altstack);
		CHECK(got[SIGUSR1] == 0 && got[SIGUSR2] == 0 && got[SIGRTMIN + 1] == 0);
	} while (feature_step());
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sigprocmask(SIG_UNBLOCK, &blocked, NULL) == 0);
	CHECK(got[SIGUSR1] == 1 && got[SIGRTMIN + 1] == 1);
	return 0;
}
