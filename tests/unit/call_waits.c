/* SPDX-License-Identifier: BSD-2-Clause */
#include "call_waits.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/wait.h"

#define NS 1000000000ll
#define MS 1000000ll

int call_waits_ends[2];
struct timespec call_waits_rest;
struct pollfd call_waits_polled;

static int epoll, set;
static sem_t never;
static pid_t child;

static int wait_nanosleep(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * MS };

	return WAIT_NOTED(wait_ns(&t), nanosleep(&t, NULL));
}

static int wait_rest(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * MS };

	return nanosleep(&t, &call_waits_rest);
}

static int wait_clock(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * MS };

	errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &call_waits_rest);
	return errno ? -1 : 0;
}

static int wait_until(long ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000 + (t.tv_nsec + ms % 1000 * MS) / NS;
	t.tv_nsec = (t.tv_nsec + ms % 1000 * MS) % NS;
	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	return errno ? -1 : 0;
}

static int wait_poll(long ms)
{
	call_waits_polled = (struct pollfd){ .fd = call_waits_ends[0], .events = POLLIN };
	return WAIT_NOTED((uint64_t)ms * MS, poll(&call_waits_polled, 1, (int)ms));
}

static int wait_ppoll(long ms)
{
	call_waits_polled = (struct pollfd){ .fd = call_waits_ends[0], .events = POLLIN };
	return ppoll(&call_waits_polled, 1, &(struct timespec){ ms / 1000, ms % 1000 * MS }, NULL);
}

static int wait_poll_forever(long ms)
{
	call_waits_polled = (struct pollfd){ .fd = call_waits_ends[0], .events = POLLIN };
	return poll(&call_waits_polled, 1, -1);
}

static int wait_select(long ms)
{
	struct timeval t = { ms / 1000, ms % 1000 * 1000 };
	fd_set set;
	int r;

	FD_ZERO(&set);
	FD_SET(call_waits_ends[0], &set);
	r = select(call_waits_ends[0] + 1, &set, NULL, NULL, &t);
	call_waits_rest = (struct timespec){ t.tv_sec, t.tv_usec * 1000 };
	return r;
}

static int wait_pselect(long ms)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(call_waits_ends[0], &set);
	return pselect(call_waits_ends[0] + 1, &set, NULL, NULL, &(struct timespec){ ms / 1000, ms % 1000 * MS }, NULL);
}

static int wait_epoll(long ms)
{
	struct epoll_event event;

	return WAIT_NOTED((uint64_t)ms * MS, epoll_wait(epoll, &event, 1, (int)ms));
}

/* Past the wrappers: nobody has noted a time. */
static int wait_unnoted(long ms)
{
	struct epoll_event event;

	return epoll_wait(epoll, &event, 1, (int)ms);
}

static int wait_read(long ms)
{
	char byte;

	return (int)read(call_waits_ends[0], &byte, 1);
}

static int wait_semaphore(long ms)
{
	return sem_wait(&never);
}

static int wait_set(long ms)
{
	return semop(set, &(struct sembuf){ .sem_op = -1 }, 1);
}

static int wait_child(long ms)
{
	return waitpid(child, NULL, 0);
}

const struct call_wait call_waits[CALL_WAITS] = {
	{ .wait = wait_nanosleep },
	{ wait_rest, .has_rest = true },
	{ wait_clock, .has_rest = true },
	{ .wait = wait_until },
	{ wait_poll, .reads = true },
	{ wait_ppoll, .reads = true },
	{ wait_poll_forever, .reads = true, .endless = true },
	{ wait_select, .reads = true, .has_rest = true },
	{ wait_pselect, .reads = true },
	{ wait_epoll, .reads = true },
	{ wait_unnoted, .reads = true },
	{ wait_read, .takes = true, .endless = true, .restarts = true },
	{ wait_semaphore, .endless = true, .restarts = true },
	{ wait_set, .endless = true, .lasts = true },
	{ wait_child, .endless = true, .restarts = true },
};

/* The child ends with us. */
static bool child_begin(void)
{
	const pid_t parent = getpid();

	child = fork();
	if (child)
		return child > 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent)
		pause();
	_exit(0);
}

bool call_waits_init(void)
{
	if (pipe(call_waits_ends) || (epoll = epoll_create1(0)) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, call_waits_ends[0], &(struct epoll_event){ .events = EPOLLIN }))
		return false;
	return sem_init(&never, 0, 0) == 0 && (set = semget(IPC_PRIVATE, 1, 0600)) >= 0 && child_begin();
}

bool call_waits_end(void)
{
	return semctl(set, 0, IPC_RMID) == 0;
}
