/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pipes: a stream of numbers from a child and one to it, with bytes in flight at any moment; a pipe that is kept half full,
 * one without a reader, one without a writer, a non-blocking one.
 */
#include "feature.h"

#include <signal.h>
#include <sys/wait.h>

static int down[2], up[2], half[2], no_reader[2], no_writer[2], nonblock[2];

static void put(int fd, uint32_t value)
{
	CHECK(write(fd, &value, 4) == 4);
}

static int get(int fd, uint32_t want)
{
	uint32_t value;
	ssize_t n = read(fd, &value, 4);

	CHECK(n == 4 || n == 0);
	CHECK(n == 0 || value == want);
	return n == 4;
}

/* Answers each number; keeps up to 50 of them in flight. */
static void child(void)
{
	uint32_t got = 0;

	CHECK(close(down[1]) == 0 && close(up[0]) == 0);
	while (get(down[0], got))
		put(up[1], 3 * got++);
	_exit(0);
}

static void make(void)
{
	char fill[10000];

	CHECK(pipe(down) == 0 && pipe(up) == 0 && pipe(half) == 0 && pipe(no_reader) == 0 && pipe(no_writer) == 0);
	CHECK(pipe2(nonblock, O_NONBLOCK | O_CLOEXEC) == 0);
	CHECK(fcntl(half[1], F_SETPIPE_SZ, 16384) == 16384);
	pattern_fill(fill, sizeof(fill), 3);
	CHECK(write(half[1], fill, sizeof(fill)) == (ssize_t)sizeof(fill));
	CHECK(close(no_reader[0]) == 0 && close(no_writer[1]) == 0);
}

static void check(void)
{
	char c[10000];

	CHECK(write(no_reader[1], "x", 1) == -1 && errno == EPIPE);
	CHECK(read(no_writer[0], c, 1) == 0);
	CHECK(read(nonblock[0], c, 1) == -1 && errno == EAGAIN);
	CHECK(fcntl(nonblock[0], F_GETFD) == FD_CLOEXEC && fcntl(half[0], F_GETFD) == 0);
	CHECK(fcntl(half[0], F_GETPIPE_SZ) == 16384);
	CHECK(read(half[0], c, sizeof(c)) == (ssize_t)sizeof(c) && pattern_holds(c, sizeof(c), 3));
	CHECK(write(half[1], c, sizeof(c)) == (ssize_t)sizeof(c));
}

int main(void)
{
	uint32_t sent = 0, got = 0;
	int status;
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	make();
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK(close(down[0]) == 0 && close(up[1]) == 0);
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 40; i++) {
			put(down[1], sent++);
			if (sent - got > 50)
				CHECK(get(up[0], 3 * got++));
		}
		check();
	} while (feature_step());
	CHECK(close(down[1]) == 0);
	while (get(up[0], 3 * got))
		got++;
	CHECK(got == sent);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
