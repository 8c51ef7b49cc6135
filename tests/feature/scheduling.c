/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads and a child that have bound themselves to processors, are nice, run in batch, or read and write when nobody else does: each as it has set itself, the others as they were begun. Names, too. */
#include "feature.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define IO_IDLE (3 << 13) /* ioprio_set(2) */
#define IO_HIGH (2 << 13)

static cpu_set_t one;
static pthread_barrier_t started;
static volatile int stop;
static int first, begun, begun_io; /* begun: the nice value */

static int io_set(int priority)
{
	return (int)syscall(SYS_ioprio_set, 1, 0, priority);
}

static int io_priority(void)
{
	return (int)syscall(SYS_ioprio_get, 1, 0);
}

static int is_bound(pid_t tid)
{
	cpu_set_t now;

	CHECK(sched_getaffinity(tid, sizeof(now), &now) == 0);
	return CPU_EQUAL(&now, &one);
}

static void *bound(void *arg)
{
	char name[16];

	CHECK(pthread_setname_np(pthread_self(), "bound") == 0 && sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(setpriority(PRIO_PROCESS, (id_t)gettid(), begun + 7) == 0 && io_set(IO_IDLE) == 0);
	pthread_barrier_wait(&started);
	while (!stop) {
		CHECK(is_bound(0) && sched_getcpu() == first && getpriority(PRIO_PROCESS, (id_t)gettid()) == begun + 7);
		CHECK(sched_getscheduler(0) == SCHED_OTHER && io_priority() == IO_IDLE);
		feature_work();
	}
	CHECK(pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 && strcmp(name, "bound") == 0);
	return arg;
}

static void *batch(void *arg)
{
	const struct sched_param none = { 0 };

	CHECK(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none) == 0);
	pthread_barrier_wait(&started);
	while (!stop) {
		CHECK(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK) && getpriority(PRIO_PROCESS, (id_t)gettid()) == begun);
		feature_work();
	}
	return arg;
}

/* What a child has set, and what it has from its parent, is neither's that began the job. */
static void child(void)
{
	const struct sched_param none = { 0 };

	CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0 && nice(3) == begun + 3 && io_set(IO_HIGH) == 0);
	feature_ready();
	while (!feature_finished()) {
		CHECK(sched_getscheduler(0) == SCHED_IDLE && getpriority(PRIO_PROCESS, 0) == begun + 3 && io_priority() == IO_HIGH);
		CHECK(usleep(1000) == 0 || errno == EINTR);
	}
	_exit(0);
}

int main(void)
{
	pthread_t threads[2];
	cpu_set_t all;
	int status;
	pid_t pid;

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	begun = getpriority(PRIO_PROCESS, 0);
	begun_io = io_priority();
	if (CPU_COUNT(&all) < 2 || begun > 12)
		feature_skip("one processor only, or too nice already: what is set cannot be told from what was there");
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_SET(first, &one);
	CHECK(pthread_barrier_init(&started, NULL, 3) == 0);
	CHECK(pthread_create(&threads[0], NULL, bound, NULL) == 0 && pthread_create(&threads[1], NULL, batch, NULL) == 0);
	pthread_barrier_wait(&started);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child();
	while (feature_step()) {
		cpu_set_t now;

		CHECK(sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &all));
		CHECK(sched_getscheduler(0) == SCHED_OTHER && getpriority(PRIO_PROCESS, 0) == begun && io_priority() == begun_io);
		feature_work();
	}
	stop = 1;
	CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
