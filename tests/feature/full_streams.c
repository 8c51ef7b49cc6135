/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams that are full at any moment: TCP both ways, a unix socket and a pipe, written until nothing more fits, while the reader takes
 * less than that. So a TCP sender mostly stands before a closed window, with bytes in the queues of both sides.
 */
#include "loopback.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STREAMS 4
#define MOST (64u << 20) /* bytes */

static int ends[STREAMS][2]; /* [0] is written, [1] read; 0 and 1 are one TCP connection, 2 unix, 3 a pipe */
static uint64_t *sent;	     /* shared: bytes of each that were written in the end */

static char byte_at(uint64_t at)
{
	return (char)(at * 31 + at / 4093);
}

/* Until nothing more fits; one that reads as fast has it end all the same. */
static void fill(int fd, uint64_t *at)
{
	static char buf[50000];
	uint64_t end = *at + MOST;

	while (*at < end) {
		ssize_t n;

		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = byte_at(*at + i);
		n = write(fd, buf, sizeof(buf));
		if (n == -1 && errno == EAGAIN)
			return;
		CHECK(n > 0);
		*at += (uint64_t)n;
	}
}

/* At most @most bytes, without waiting; 0 at the end. */
static int take(int fd, uint64_t *at, size_t most)
{
	static char buf[1 << 18];
	ssize_t n = read(fd, buf, most < sizeof(buf) ? most : sizeof(buf));

	if (n == -1 && errno == EAGAIN)
		return 1;
	CHECK(n >= 0);
	for (ssize_t i = 0; i < n; i++)
		CHECK(buf[i] == byte_at(*at + (uint64_t)i));
	*at += (uint64_t)n;
	return n > 0;
}

static void drain_to_end(int fd, uint64_t *at)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (take(fd, at, 1 << 18))
		CHECK(poll(&p, 1, 10000) >= 0);
}

/* The child reads streams 0, 2 and 3, and writes stream 1. */
static void child(void)
{
	uint64_t got[STREAMS] = { 0 }, put = 0;

	CHECK(close(ends[0][0]) == 0 && close(ends[2][0]) == 0 && close(ends[3][0]) == 0);
	while (!feature_finished()) {
		fill(ends[1][0], &put);
		for (int i = 0; i < STREAMS; i++)
			if (i != 1)
				take(ends[i][1], &got[i], 3000);
		feature_work();
	}
	sent[1] = put;
	CHECK(shutdown(ends[1][0], SHUT_WR) == 0);
	for (int i = 0; i < STREAMS; i++)
		if (i != 1) {
			drain_to_end(ends[i][1], &got[i]);
			CHECK(got[i] == sent[i]);
		}
	_exit(0);
}

static void make(void)
{
	int tcp[2], local[2];

	connect_loopback(tcp);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, local) == 0 && pipe(ends[3]) == 0);
	ends[0][0] = ends[1][1] = tcp[0];
	ends[0][1] = ends[1][0] = tcp[1];
	ends[2][0] = local[0];
	ends[2][1] = local[1];
	ends[3][0] ^= ends[3][1], ends[3][1] ^= ends[3][0], ends[3][0] ^= ends[3][1]; /* pipe() gives the read end first */
	for (int i = 0; i < STREAMS; i++)
		for (int k = 0; k < 2; k++)
			CHECK(fcntl(ends[i][k], F_SETFL, O_NONBLOCK) == 0);
}

int main(void)
{
	uint64_t put[STREAMS] = { 0 }, got = 0;
	int status;
	pid_t pid;

	sent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(sent != MAP_FAILED);
	make();
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK(close(ends[0][1]) == 0 && close(ends[2][1]) == 0 && close(ends[3][1]) == 0);
	feature_ready();
	do {
		for (int i = 0; i < STREAMS; i++)
			if (i != 1)
				fill(ends[i][0], &put[i]);
		take(ends[1][1], &got, 2000);
		feature_work();
	} while (feature_step());
	memcpy(&sent[2], &put[2], sizeof(put[2]) * 2);
	sent[0] = put[0];
	CHECK(shutdown(ends[0][0], SHUT_WR) == 0 && close(ends[2][0]) == 0 && close(ends[3][0]) == 0);
	drain_to_end(ends[1][1], &got);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(got == sent[1]);
	return 0;
}
