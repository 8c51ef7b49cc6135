/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first thread ends by pthread_exit; the process is its other threads. So it is with main, whose child is whole, and has a child of that kind again. All have each description of the others, and hand a token on in each way that
 * they share.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MAIN, WHOLE, LEADERLESS, COUNT };

static struct {
	int pipes[COUNT][2], sockets[COUNT][2]; /* to each, from the one before */
	int event[COUNT], epoll[COUNT]; /* epoll: of @event */
	int file;
} shared;

static void make_shared(void)
{
	for (int i = 0; i < COUNT; i++) {
		struct epoll_event e = { .events = EPOLLIN, .data.u64 = (uint64_t)i };

		CHECK(pipe(shared.pipes[i]) == 0);
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, shared.sockets[i]) == 0);
		CHECK((shared.event[i] = eventfd(0, 0)) >= 0);
		CHECK((shared.epoll[i] = epoll_create1(0)) >= 0);
		CHECK(epoll_ctl(shared.epoll[i], EPOLL_CTL_ADD, shared.event[i], &e) == 0);
	}
	CHECK((shared.file = open("offset", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
}

static void give(int to, uint64_t token)
{
	CHECK(write(shared.file, &token, sizeof(token)) == sizeof(token)); /* one offset for all */
	CHECK(write(shared.pipes[to][1], &token, sizeof(token)) == sizeof(token));
	CHECK(write(shared.sockets[to][1], &token, sizeof(token)) == sizeof(token));
	CHECK(write(shared.event[to], &token, sizeof(token)) == sizeof(token));
}

static uint64_t take(int me)
{
	struct epoll_event e;
	uint64_t by_pipe, by_socket, by_event;
	int n;

	do
		n = epoll_wait(shared.epoll[me], &e, 1, -1);
	while (n < 0 && errno == EINTR);
	CHECK(n == 1 && e.data.u64 == (uint64_t)me);
	CHECK(read(shared.event[me], &by_event, sizeof(by_event)) == sizeof(by_event));
	CHECK(read(shared.pipes[me][0], &by_pipe, sizeof(by_pipe)) == sizeof(by_pipe));
	CHECK(recv(shared.sockets[me][0], &by_socket, sizeof(by_socket), MSG_WAITALL) == sizeof(by_socket));
	CHECK(by_pipe == by_event && by_socket == by_event);
	return by_event;
}

/* UINT64_MAX - 1 ends all. */
static void *pass_on(void *arg)
{
	int me = (int)(intptr_t)arg;
	uint64_t token;

	do {
		token = take(me);
		give((me + 1) % COUNT, token == UINT64_MAX - 1 ? token : token + 1);
	} while (token != UINT64_MAX - 1);
	exit(me);
}

static void *work(void *arg)
{
	pthread_t leader = *(pthread_t *)arg;
	uint64_t token = 1, steps = 0;
	int status;

	CHECK(pthread_join(leader, NULL) == 0);
	CHECK(gettid() != getpid());
	give(WHOLE, token);
	feature_ready();
	while (feature_step()) {
		steps++;
		CHECK(take(MAIN) == token + 2);
		CHECK(lseek(shared.file, 0, SEEK_CUR) == (off_t)(steps * COUNT * sizeof(token)));
		give(WHOLE, token += 3);
		feature_work();
	}
	take(MAIN);
	give(WHOLE, UINT64_MAX - 1);
	CHECK(take(MAIN) == UINT64_MAX - 1);
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == WHOLE);
	exit(0);
}

static void leave_first(void *(*to)(void *), void *arg)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, to, arg) == 0);
	pthread_exit(NULL);
}

int main(void)
{
	static pthread_t self;
	pid_t pid;

	make_shared();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			leave_first(pass_on, (void *)(intptr_t)LEADERLESS);
		pass_on((void *)(intptr_t)WHOLE);
	}
	self = pthread_self();
	leave_first(work, &self);
	return 0;
}
