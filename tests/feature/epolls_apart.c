/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoll sets that two processes have, of which one cannot name what they watch: a child has added what its parent never had, and one has closed what its parent's set watches (redis' does, while it saves). After a restart
 * that one's number is lower than its parent's.
 */
#include "epoll_calls.h"

#include <sys/wait.h>

/* Nothing else is. */
static void told(int set, uint64_t data)
{
	struct epoll_event e[2];

	CHECK(epoll_wait(set, e, 2, 20000) == 1 && e[0].data.u64 == data && e[0].events == EPOLLIN);
}

static void is_quiet(int set)
{
	struct epoll_event e;

	CHECK(epoll_wait(set, &e, 1, 0) == 0);
}

/* Adds an event of its own to its parent's set, and has it told of when it is asked to. */
static pid_t begin_adding(int set, int *ret_ask, int *ret_answer)
{
	int ask[2], answer[2], event;
	pid_t pid;
	char c;

	CHECK(pipe(ask) == 0 && pipe(answer) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(close(ask[1]) == 0 && close(answer[0]) == 0);
		event = eventfd(0, 0);
		CHECK(event >= 0);
		add(set, event, EPOLLIN, TAG + 1);
		do {
			CHECK(write(answer[1], "", 1) == 1);
			if (read(ask[0], &c, 1) != 1)
				_exit(0);
			if (c == 'p')
				put(event);
			else
				CHECK(take(event) == 1);
		} while (1);
	}
	CHECK(close(ask[0]) == 0 && close(answer[1]) == 0 && read(answer[0], &c, 1) == 1);
	*ret_ask = ask[1];
	*ret_answer = answer[0];
	return pid;
}

/* Has closed @event, but has the set, until the pipe is closed. */
static pid_t begin_closed(int set, int event, int *ret_way)
{
	int way[2];
	pid_t pid;
	char c;

	CHECK(pipe(way) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(close(event) == 0 && close(way[1]) == 0);
		CHECK(read(way[0], &c, 1) == 0 && fcntl(set, F_GETFD) == 0);
		_exit(0);
	}
	CHECK(close(way[0]) == 0);
	*ret_way = way[1];
	return pid;
}

static void ask(int way, int answer, char what)
{
	char c;

	CHECK(write(way, &what, 1) == 1 && read(answer, &c, 1) == 1);
}

int main(void)
{
	int added = epoll_create1(0), own = epoll_create1(0), event = eventfd(0, 0), asking, answer, way, status;
	pid_t adding, closed;

	CHECK(added >= 0 && own >= 0 && event >= 0);
	add(own, event, EPOLLIN, TAG + 2);
	adding = begin_adding(added, &asking, &answer);
	feature_ready();
	do {
		closed = begin_closed(own, event, &way);
		put(event);
		ask(asking, answer, 'p');
		feature_work();
		told(own, TAG + 2);
		told(added, TAG + 1);
		CHECK(take(event) == 1);
		ask(asking, answer, 't');
		feature_work();
		is_quiet(own);
		is_quiet(added);
		CHECK(close(way) == 0 && waitpid(closed, &status, 0) == closed && status == 0);
	} while (feature_step());
	CHECK(close(asking) == 0 && waitpid(adding, &status, 0) == adding && status == 0);
	return 0;
}
