/* SPDX-License-Identifier: BSD-2-Clause */
/*
 *   woken waits | semaphores
 *
 * Threads that wait long, each in another call (semaphores: in semop, whose semaphores need a namespace), and that others end by a signal after a short time. That is over for all of these while the process stands, so they send their signals as all go on, just when the waits do: not one may be missed, and the
 * rest that is told is what is left.
 */
#include "feature.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define AFTER 10000000ull /* ns */
#define LONG 15		  /* seconds */

static int quiet[2], epoll, set;
static sem_t never;
static pid_t child;
static volatile int stop;

static const struct timespec limit = { LONG, 0 };

static int sleeps(struct timespec *rest)
{
	*rest = limit;
	return nanosleep(&limit, NULL);
}

static int sleeps_with_rest(struct timespec *rest)
{
	return nanosleep(&limit, rest);
}

static int polls(struct timespec *rest)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	*rest = limit;
	return poll(&p, 1, LONG * 1000);
}

static int selects(struct timespec *rest)
{
	struct timeval left = { LONG, 0 };
	int r = select(0, NULL, NULL, NULL, &left);

	*rest = (struct timespec){ left.tv_sec, left.tv_usec * 1000 };
	return r;
}

static int waits_for_event(struct timespec *rest)
{
	struct epoll_event event;

	*rest = limit;
	return epoll_wait(epoll, &event, 1, LONG * 1000);
}

static int reads(struct timespec *rest)
{
	char byte;

	*rest = limit;
	return (int)read(quiet[0], &byte, 1);
}

static int waits_for_semaphore(struct timespec *rest)
{
	*rest = limit;
	return sem_wait(&never);
}

static int waits_for_set(struct timespec *rest)
{
	struct sembuf take = { .sem_op = -1 };

	*rest = limit;
	return semop(set, &take, 1);
}

static int waits_for_child(struct timespec *rest)
{
	*rest = limit;
	return waitpid(child, NULL, 0);
}

static int (*const waits[])(struct timespec *rest) = { sleeps, sleeps_with_rest, polls, selects, waits_for_event, reads, waits_for_semaphore, waits_for_child, waits_for_set };
enum { WAITS = sizeof(waits) / sizeof(waits[0]), SETS = WAITS - 1 };

static unsigned int first, end; /* of these are waited in */

struct pair {
	pthread_t waiter, waker;
	pthread_barrier_t begins;
	unsigned int number;
	volatile unsigned int woken;
	volatile int tid, last;
};

static __thread volatile int came;

static void on_signal(int sig)
{
	(void)sig;
	came++;
}

/* Until the signal has ended the wait, or had its handler run before. */
static void *wait_long(void *arg)
{
	struct pair *p = arg;

	p->tid = (int)syscall(SYS_gettid);
	while (1) {
		const uint64_t before = feature_now(CLOCK_MONOTONIC);
		struct timespec rest;

		came = 0;
		pthread_barrier_wait(&p->begins);
		if (p->last)
			return NULL;
		CHECK(waits[p->number](&rest) == -1 && errno == EINTR);
		CHECK(came == 1 && feature_now(CLOCK_MONOTONIC) - before >= AFTER);
		CHECK(rest.tv_sec <= LONG && (rest.tv_sec || rest.tv_nsec));
		p->woken++;
	}
}

/* A signal that came before would end nothing, in any program. */
static void await_waiting(int tid)
{
	static const int waiting[] = { SYS_nanosleep, SYS_clock_nanosleep, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, SYS_read, SYS_semop, SYS_semtimedop, SYS_wait4 };
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	while (1) {
		FILE *f = fopen(path, "re");
		unsigned long long argument = 0;
		int number = -1;

		CHECK(f);
		if (fscanf(f, "%d %llx", &number, &argument) < 1)
			number = -1; /* it runs */
		fclose(f);
		if (number == SYS_futex && argument == (unsigned long long)&never)
			return;
		for (size_t i = 0; i < sizeof(waiting) / sizeof(waiting[0]); i++)
			if (number == waiting[i])
				return;
		sched_yield();
	}
}

static void wait_short(pthread_cond_t *unsignalled)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const uint64_t end = feature_now(CLOCK_MONOTONIC) + AFTER;
	const struct timespec ts = { (time_t)(end / 1000000000), (long)(end % 1000000000) };

	pthread_mutex_lock(&lock);
	while (pthread_cond_timedwait(unsignalled, &lock, &ts) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&lock);
}

static void *wake(void *arg)
{
	struct pair *p = arg;
	pthread_cond_t unsignalled;
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&unsignalled, &attr);
	while (1) {
		p->last = stop;
		pthread_barrier_wait(&p->begins);
		if (p->last)
			return NULL;
		await_waiting(p->tid);
		wait_short(&unsignalled);
		CHECK(pthread_kill(p->waiter, SIGUSR1) == 0);
	}
}

/* Each waited some times more. */
static int all_woken(const struct pair *pairs, unsigned int times)
{
	for (unsigned int i = first; i < end; i++)
		if (pairs[i].woken < times)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	const int semaphores = argc > 1 && !strcmp(argv[1], "semaphores");
	const struct sigaction sa = { .sa_handler = on_signal };
	static struct pair pairs[WAITS];
	unsigned int times = 0;

	CHECK(pipe(quiet) == 0 && (epoll = epoll_create1(0)) >= 0 && sigaction(SIGUSR1, &sa, NULL) == 0);
	CHECK(sem_init(&never, 0, 0) == 0 && (!semaphores || (set = semget(IPC_PRIVATE, 1, 0600)) >= 0) && (child = fork()) >= 0);
	while (!child)
		pause();
	first = semaphores ? SETS : 0;
	end = semaphores ? WAITS : SETS;
	for (unsigned int i = first; i < end; i++) {
		pairs[i].number = i;
		CHECK(pthread_barrier_init(&pairs[i].begins, NULL, 2) == 0);
		CHECK(pthread_create(&pairs[i].waiter, NULL, wait_long, &pairs[i]) == 0);
		CHECK(pthread_create(&pairs[i].waker, NULL, wake, &pairs[i]) == 0);
	}
	feature_ready();
	do {
		for (times++; !all_woken(pairs, times);)
			usleep(1000);
	} while (feature_step());
	stop = 1;
	for (unsigned int i = first; i < end; i++)
		CHECK(pthread_join(pairs[i].waiter, NULL) == 0 && pthread_join(pairs[i].waker, NULL) == 0);
	CHECK((!semaphores || semctl(set, 0, IPC_RMID) == 0) && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	return 0;
}
