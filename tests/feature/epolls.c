/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoll sets: level and edge, once-only ones armed and disarmed (of something hung up, too), data of 64 bits, one file under two numbers, a set within a set, one shared
 * with a child, 300 members, and a thread that waits in a set nearly all the time.
 */
#include "epoll_calls.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MANY 300

static int set, outer, level, edge, once, disarmed, idle, twin, server, shared, poke, many_set, many[MANY], pair[2], hung[2];

/* Waits until @data is told of; what else comes is one of the others. */
static uint32_t told(int in, uint64_t data)
{
	struct epoll_event e[32];

	for (;;) {
		int n = epoll_wait(in, e, 32, 20000);

		CHECK(n > 0);
		for (int i = 0; i < n; i++)
			if (e[i].data.u64 == data)
				return e[i].events;
	}
}

static int is_told(int in, uint64_t data)
{
	struct epoll_event e[MANY];
	int n = epoll_wait(in, e, MANY, 0), found = 0;

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		found |= e[i].data.u64 == data;
	return found;
}

/* Answers each byte, found by waiting. */
static void *serve(void *arg)
{
	struct epoll_event e;
	char c;

	for (;;) {
		CHECK(epoll_wait(server, &e, 1, -1) == 1 && e.data.u64 == TAG + 99);
		CHECK(read(pair[1], &c, 1) == 1);
		if (c == 'q')
			return arg;
		CHECK(write(pair[1], &c, 1) == 1);
	}
}

static void child(void)
{
	while (told(shared, TAG + 50) & EPOLLIN) {
		uint64_t n;

		take(poke);
		CHECK(read(idle, &n, sizeof(n)) == -1 && errno == EAGAIN);
		if (feature_finished())
			_exit(0);
	}
}

static void make(void)
{
	int *all[] = { &level, &edge, &once, &disarmed, &idle };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		CHECK((*all[i] = eventfd(0, EFD_NONBLOCK)) >= 0);
	poke = eventfd(0, 0);
	twin = dup(level);
	set = epoll_create1(0);
	outer = epoll_create1(EPOLL_CLOEXEC);
	server = epoll_create1(0);
	shared = epoll_create1(0);
	many_set = epoll_create1(0);
	CHECK(many_set >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	add(set, level, EPOLLIN, TAG + 1);
	add(set, edge, EPOLLIN | EPOLLET, TAG + 2);
	add(set, once, EPOLLIN | EPOLLONESHOT, TAG + 3);
	add(set, disarmed, EPOLLIN | EPOLLONESHOT, TAG + 4);
	add(set, twin, EPOLLIN | EPOLLEXCLUSIVE, TAG + 5);
	add(outer, set, EPOLLIN, TAG + 6);
	add(server, pair[1], EPOLLIN, TAG + 99);
	add(shared, poke, EPOLLIN, TAG + 50);
	for (int i = 0; i < MANY; i++) {
		CHECK((many[i] = eventfd(0, EFD_NONBLOCK)) >= 0);
		add(many_set, many[i], EPOLLIN, TAG + (uint64_t)i);
	}
	put(disarmed);
	CHECK(told(set, TAG + 4) == EPOLLIN);
	CHECK(pipe(hung) == 0);
	add(set, hung[0], EPOLLIN | EPOLLONESHOT, TAG + 8);
	CHECK(close(hung[1]) == 0 && told(set, TAG + 8) == EPOLLHUP);
}

static void check(unsigned int step)
{
	char c = 'a';

	/* Readable and hung up, but disarmed. */
	CHECK(!is_told(set, TAG + 1) && !is_told(set, TAG + 4) && !is_told(set, TAG + 8));
	put(level);
	CHECK(told(outer, TAG + 6) & EPOLLIN && told(set, TAG + 1) == EPOLLIN && told(set, TAG + 5) == EPOLLIN);
	take(level);
	put(edge);
	CHECK(told(set, TAG + 2) == EPOLLIN);
	take(edge);
	put(many[step % MANY]);
	CHECK(told(many_set, TAG + step % MANY) == EPOLLIN);
	take(many[step % MANY]);
	CHECK(write(pair[0], &c, 1) == 1 && read(pair[0], &c, 1) == 1);
	put(poke);
	CHECK(fcntl(outer, F_GETFD) == FD_CLOEXEC && fcntl(set, F_GETFD) == 0);
}

int main(void)
{
	struct epoll_event rearm = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = TAG + 7 };
	pthread_t thread;
	unsigned int step = 0;
	pid_t pid;

	make();
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
	feature_ready();
	do {
		feature_work();
		check(step++);
	} while (feature_step());
	put(once);
	CHECK(told(set, TAG + 3) == EPOLLIN && !is_told(set, TAG + 3));
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, disarmed, &rearm) == 0 && told(set, TAG + 7) == EPOLLIN);
	CHECK(write(pair[0], "q", 1) == 1 && pthread_join(thread, NULL) == 0);
	put(poke);
	CHECK(waitpid(pid, NULL, 0) == pid);
	return 0;
}
