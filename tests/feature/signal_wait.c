/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that wait for signals: sigwait, sigwaitinfo, sigtimedwait, sigsuspend, pause. Each wakes up for the program's signals,
 * each of them once, and for nothing else.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>

static volatile int stop;
static volatile sig_atomic_t suspended_got, paused_got;
static uint64_t waited, sent;
static pthread_barrier_t started;

static void on_suspend(int sig)
{
	suspended_got++;
}

static void on_pause(int sig)
{
	paused_got++;
}

static void *wait_signal(void *arg)
{
	sigset_t set;
	siginfo_t info;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_barrier_wait(&started);
	for (uint64_t n = 0; !stop; n++) {
		if (n % 2) {
			CHECK(sigwait(&set, &sig) == 0 && sig == SIGUSR1);
		} else {
			CHECK(sigwaitinfo(&set, &info) == SIGUSR1);
			CHECK((info.si_code == SI_TKILL || info.si_code == SI_USER) && info.si_pid == getpid());
		}
		__atomic_add_fetch(&waited, 1, __ATOMIC_RELEASE);
	}
	return arg;
}

static void *suspend(void *arg)
{
	sigset_t set;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
	sigdelset(&set, SIGUSR2);
	pthread_barrier_wait(&started);
	for (int n = 1; !stop; n++) {
		CHECK(sigsuspend(&set) == -1 && errno == EINTR);
		CHECK(suspended_got == n);
		__atomic_add_fetch(&waited, 1, __ATOMIC_RELEASE);
	}
	return arg;
}

static void *wait_pause(void *arg)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	pthread_barrier_wait(&started);
	CHECK(pause() == -1 && errno == EINTR);
	CHECK(paused_got == 1 && stop);
	return arg;
}

static void *wait_timed(void *arg)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_barrier_wait(&started);
	while (!stop) {
		uint64_t before = feature_now(CLOCK_MONOTONIC);

		CHECK(sigtimedwait(&set, NULL, &(struct timespec){ 0, 5000000 }) == -1 && errno == EAGAIN);
		CHECK(feature_now(CLOCK_MONOTONIC) - before >= 5000000);
	}
	return arg;
}

int main(void)
{
	void *(*work[])(void *) = { wait_signal, suspend, wait_pause, wait_timed };
	pthread_t threads[4];
	sigset_t set;

	signal(SIGUSR2, on_suspend);
	signal(SIGHUP, on_pause);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGALRM);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_barrier_init(&started, NULL, 5) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, work[i], NULL) == 0);
	pthread_barrier_wait(&started);
	feature_ready();
	do {
		CHECK(pthread_kill(threads[0], SIGUSR1) == 0);
		CHECK(pthread_kill(threads[1], SIGUSR2) == 0);
		sent += 2;
		while (__atomic_load_n(&waited, __ATOMIC_ACQUIRE) != sent)
			sched_yield();
		feature_work();
		CHECK(paused_got == 0);
	} while (feature_step());
	stop = 1;
	CHECK(pthread_kill(threads[0], SIGUSR1) == 0);
	CHECK(pthread_kill(threads[1], SIGUSR2) == 0);
	CHECK(pthread_kill(threads[2], SIGHUP) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
