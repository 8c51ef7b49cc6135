/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Servers that always have more to do, of TCP and of unix sockets: some of what their client has sent waits in a queue of theirs, on a connection that is not accepted yet, where nobody can look at it. Each
 * question is answered once, and to who asked it.
 */
#include "loopback.h"

#include <poll.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SERVERS 2u /* of a listener */
#define ASKING 8u
#define WORK_NS 3000000
#define END UINT64_MAX

static struct queue {
	int listener;
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} at;
	socklen_t length;
} queues[2];

static struct asking {
	int fd;
	uint64_t question;
} asking[2 * ASKING];

static uint64_t answer_to(uint64_t question)
{
	return question * 0x9e3779b97f4a7c15u + 1;
}

static void make_queues(void)
{
	queues[0].listener = socket(AF_INET, SOCK_STREAM, 0);
	bind_loopback(queues[0].listener, &queues[0].at.in);
	queues[0].length = sizeof(queues[0].at.in);
	queues[1].listener = socket(AF_UNIX, SOCK_STREAM, 0);
	queues[1].at.un.sun_family = AF_UNIX;
	snprintf(queues[1].at.un.sun_path, sizeof(queues[1].at.un.sun_path), "%s", "listener");
	queues[1].length = sizeof(queues[1].at.un);
	CHECK(bind(queues[1].listener, &queues[1].at.any, queues[1].length) == 0);
	for (unsigned i = 0; i < 2; i++)
		CHECK(listen(queues[i].listener, 2 * ASKING) == 0);
}

__attribute__((noreturn)) static void serve(int listener)
{
	const struct timespec work = { .tv_nsec = WORK_NS };

	for (;;) {
		int fd = accept(listener, NULL, NULL);
		uint64_t question, answer;

		CHECK(fd >= 0 && recv(fd, &question, sizeof(question), MSG_WAITALL) == sizeof(question));
		if (question == END)
			_exit(0);
		nanosleep(&work, NULL);
		answer = answer_to(question);
		CHECK(send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer) && close(fd) == 0);
	}
}

static int ask(const struct queue *q, uint64_t question)
{
	int fd = socket(q->at.any.sa_family, SOCK_STREAM, 0);

	CHECK(fd >= 0 && connect(fd, &q->at.any, q->length) == 0);
	CHECK(send(fd, &question, sizeof(question), MSG_NOSIGNAL) == sizeof(question));
	return fd;
}

static void take_answer(struct asking *a)
{
	uint64_t answer;
	char more;

	CHECK(recv(a->fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) && answer == answer_to(a->question));
	CHECK(recv(a->fd, &more, 1, 0) == 0 && close(a->fd) == 0);
	a->fd = -1;
}

/* Whoever has an answer asks the next question. */
static void turn(uint64_t *next)
{
	struct pollfd ready[2 * ASKING];

	for (unsigned i = 0; i < 2 * ASKING; i++) {
		struct asking *a = &asking[i];

		if (a->fd < 0) {
			a->question = (*next)++;
			a->fd = ask(&queues[i / ASKING], a->question);
		}
		ready[i] = (struct pollfd){ .fd = a->fd, .events = POLLIN };
	}
	CHECK(poll(ready, 2 * ASKING, -1) > 0 || errno == EINTR);
	for (unsigned i = 0; i < 2 * ASKING; i++)
		if (ready[i].revents)
			take_answer(&asking[i]);
}

int main(void)
{
	uint64_t next = 0;
	int status;

	make_queues();
	for (unsigned i = 0; i < 2 * SERVERS; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid)
			serve(queues[i / SERVERS].listener);
	}
	for (unsigned i = 0; i < 2 * ASKING; i++)
		asking[i].fd = -1;
	turn(&next);
	feature_ready();
	do
		turn(&next);
	while (feature_step());
	for (unsigned i = 0; i < 2 * ASKING; i++)
		if (asking[i].fd >= 0)
			take_answer(&asking[i]);
	for (unsigned i = 0; i < 2 * SERVERS; i++)
		close(ask(&queues[i / SERVERS], END));
	for (unsigned i = 0; i < 2 * SERVERS; i++)
		CHECK(wait(&status) > 0 && status == 0);
	return 0;
}
