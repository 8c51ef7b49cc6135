/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pipes: a stream of numbers from a child and one to it, with bytes in flight at any moment; a pipe that is kept half full,
 * one without a reader, one without a writer, a non-blocking one; packets, whose writer is there, or has gone.
 */
#include "feature.h"

#include <signal.h>
#include <sys/wait.h>

static int down[2], up[2], half[2], no_reader[2], no_writer[2], nonblock[2], packets[2], left[2], single[2];
static const size_t sizes[] = { 1, 1, 4096, 100, 1, 17, 4000, 1 };

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

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

static void put_packets(int fd)
{
	char data[4096] = { 0 };

	for (size_t i = 0; i < COUNT(sizes); i++) {
		pattern_fill(data, sizes[i], i);
		CHECK(write(fd, data, sizes[i]) == (ssize_t)sizes[i]);
	}
}

static void get_packets(int fd)
{
	char data[8192];

	for (size_t i = 0; i < COUNT(sizes); i++)
		CHECK(read(fd, data, sizeof(data)) == (ssize_t)sizes[i] && pattern_holds(data, sizes[i], i));
}

static void make_packets(void)
{
	CHECK(pipe2(packets, O_DIRECT | O_NONBLOCK) == 0 && pipe2(left, O_DIRECT) == 0 && pipe2(single, O_DIRECT) == 0);
	CHECK(write(single[1], "x", 1) == 1);
	put_packets(packets[1]);
	put_packets(left[1]);
	CHECK(close(left[1]) == 0);
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
	make_packets();
}

static void check(void)
{
	char c[10000];

	CHECK(write(no_reader[1], "x", 1) == -1 && errno == EPIPE);
	CHECK(read(no_writer[0], c, 1) == 0);
	CHECK(read(nonblock[0], c, 1) == -1 && errno == EAGAIN);
	CHECK(fcntl(nonblock[0], F_GETFD) == FD_CLOEXEC && fcntl(half[0], F_GETFD) == 0);
	CHECK(fcntl(half[0], F_GETPIPE_SZ) == 16384);
	get_packets(packets[0]);
	CHECK(read(packets[0], c, 1) == -1 && errno == EAGAIN);
	put_packets(packets[1]);
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
	CHECK(got == sent && write(single[1], "yz", 2) == 2);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	get_packets(left[0]);
	CHECK(read(left[0], &got, sizeof(got)) == 0 && read(single[0], &got, sizeof(got)) == 1 && read(single[0], &got, sizeof(got)) == 2);
	return 0;
}
