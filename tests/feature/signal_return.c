/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that open a signal for their time and end when its handler has run: sigsuspend, ppoll, pselect, epoll_pwait, and pause. Here a stop comes just
 * when the handler returns: it is kept off until then by a mask that the handler sets behind libc's back. Each call ends, once for each signal.
 */
#include "feature.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

#define KINDS 5
#define LONG_ENOUGH_NS 10000000u /* for a handler, if no stop comes */

static volatile sig_atomic_t handled;
static volatile int stop, kind;
static volatile pid_t waiter;
static uint64_t begun;
static int nothing;

static uint64_t waiting_signals(void)
{
	uint64_t set = 0;

	syscall(SYS_rt_sigpending, &set, sizeof(set));
	return set;
}

static void on_signal(int sig)
{
	const uint64_t all = ~0ull, until = feature_now(CLOCK_MONOTONIC) + LONG_ENOUGH_NS;

	handled++;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all));
	while (!waiting_signals() && feature_now(CLOCK_MONOTONIC) < until)
		;
}

static int wait_once(int k, const sigset_t *open)
{
	struct epoll_event event;

	switch (k) {
	case 0: return sigsuspend(open);
	case 1: return ppoll(NULL, 0, NULL, open);
	case 2: return pselect(0, NULL, NULL, NULL, NULL, open);
	case 3: return epoll_pwait(nothing, &event, 1, -1, open);
	default: return pause();
	}
}

static void *wait_for_signals(void *arg)
{
	sigset_t one, open;

	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	waiter = (pid_t)syscall(SYS_gettid);
	for (int n = 1; !stop; n++) {
		kind = n % KINDS;
		CHECK(pthread_sigmask(kind == KINDS - 1 ? SIG_UNBLOCK : SIG_BLOCK, &one, NULL) == 0);
		CHECK(pthread_sigmask(SIG_BLOCK, NULL, &open) == 0);
		sigdelset(&open, SIGUSR2);
		__atomic_store_n(&begun, (uint64_t)n, __ATOMIC_RELEASE);
		CHECK(wait_once(kind, &open) == -1 && errno == EINTR);
		CHECK(handled == n);
	}
	return arg;
}

/* pause() has to have begun; the others open the signal by themselves. */
static int may_send(void)
{
	char path[64], text[16] = "";
	int fd;

	if (kind != KINDS - 1)
		return 1;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", waiter);
	CHECK((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return atoi(text) == SYS_pause || atoi(text) == SYS_rt_sigsuspend;
}

/* To the thread's wait @n, the last of all if @last. */
static void send_one(pthread_t to, uint64_t n, int last)
{
	while (__atomic_load_n(&begun, __ATOMIC_ACQUIRE) != n || !may_send())
		sched_yield();
	stop = last;
	CHECK(pthread_kill(to, SIGUSR2) == 0);
}

int main(void)
{
	uint64_t n = 1;
	pthread_t thread;
	sigset_t one;

	signal(SIGUSR2, on_signal);
	CHECK((nothing = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, wait_for_signals, NULL) == 0);
	feature_ready();
	do
		send_one(thread, n++, 0);
	while (feature_step());
	send_one(thread, n, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
