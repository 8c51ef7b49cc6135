/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * eventfds: a counter with something in it, a semaphore with a count and without, a non-blocking one, one that a child shares, and a
 * thread that is blocked in reading one nearly all the time.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static int counter, semaphore, empty, nonblock, request, answer, to_child, from_child;

static void put(int fd, uint64_t n)
{
	CHECK(write(fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
}

static uint64_t get(int fd)
{
	uint64_t n;

	CHECK(read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
	return n;
}

static void *echo(void *arg)
{
	uint64_t n;

	while ((n = get(request)) != 1000)
		put(answer, n + 1);
	return arg;
}

static void child(void)
{
	uint64_t n;

	while ((n = get(to_child)) != 1000)
		put(from_child, n + 2);
	_exit(0);
}

static void check(void)
{
	uint64_t n;

	CHECK(get(counter) == 77);
	put(counter, 77);
	CHECK(get(semaphore) == 1 && get(semaphore) == 1);
	put(semaphore, 2);
	CHECK(read(empty, &n, sizeof(n)) == -1 && errno == EAGAIN);
	put(empty, 2);
	CHECK(get(empty) == 1 && get(empty) == 1);
	CHECK(read(nonblock, &n, sizeof(n)) == -1 && errno == EAGAIN);
	CHECK(fcntl(nonblock, F_GETFD) == FD_CLOEXEC && fcntl(counter, F_GETFD) == 0);
	put(request, 5);
	CHECK(get(answer) == 6);
	put(to_child, 6);
	CHECK(get(from_child) == 8);
}

int main(void)
{
	pthread_t thread;
	int status;
	pid_t pid;

	counter = eventfd(77, 0);
	semaphore = eventfd(2, EFD_SEMAPHORE);
	empty = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	nonblock = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	request = eventfd(0, 0);
	answer = eventfd(0, 0);
	to_child = eventfd(0, 0);
	from_child = eventfd(0, 0);
	CHECK(counter >= 0 && from_child >= 0);
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK(pthread_create(&thread, NULL, echo, NULL) == 0);
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	put(request, 1000);
	put(to_child, 1000);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
