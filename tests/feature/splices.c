/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams that the kernel moves without the program: from a pipe into another (splice), doubled (tee), from a pipe into a socket, from a file into a socket (sendfile), and
 * out of memory into a pipe (vmsplice). Each of these calls is under way, or waits, at any moment, and no byte is lost or comes twice.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CHUNK 4096
#define FILE_NUMBERS 5000u /* in the file; its stream begins again behind the last */
#define STEP 3000u

static int first[2], second[2], doubled[2], moved[2], sent[2], file;

static void write_all(int fd, const void *data, size_t size)
{
	for (const char *p = data; size; ) {
		ssize_t n = write(fd, p, size);

		CHECK(n > 0);
		p += n;
		size -= (size_t)n;
	}
}

/* The pages are the pipe's until they are read, so each has numbers of its own. */
static void *feed(void *arg)
{
	static uint32_t pages[64][CHUNK / 4] __attribute__((aligned(CHUNK)));
	uint32_t next = 0;

	(void)arg;
	for (unsigned int page = 0;; page = (page + 1) % 64) {
		struct iovec piece = { pages[page], CHUNK };

		for (size_t i = 0; i < CHUNK / 4; i++)
			pages[page][i] = next++;
		if (page % 2) {
			write_all(first[1], piece.iov_base, piece.iov_len);
			continue;
		}
		while (piece.iov_len) {
			ssize_t n = vmsplice(first[1], &piece, 1, 0);

			CHECK(n > 0);
			piece.iov_base = (char *)piece.iov_base + n;
			piece.iov_len -= (size_t)n;
		}
	}
	return NULL;
}

static void *join_pipes(void *arg)
{
	(void)arg;
	for (;;)
		CHECK(splice(first[0], NULL, second[1], NULL, CHUNK, 0) > 0);
	return NULL;
}

static void *tee_and_move(void *arg)
{
	(void)arg;
	for (;;) {
		ssize_t n = tee(second[0], doubled[1], CHUNK, 0);

		CHECK(n > 0);
		while (n) {
			ssize_t r = splice(second[0], NULL, moved[0], NULL, (size_t)n, 0);

			CHECK(r > 0);
			n -= r;
		}
	}
	return NULL;
}

static void *send_file(void *arg)
{
	off_t at = 0;

	(void)arg;
	for (;;) {
		CHECK(sendfile(sent[0], file, &at, FILE_NUMBERS * 4) > 0);
		if (at == FILE_NUMBERS * 4)
			at = 0;
	}
	return NULL;
}

static void file_make(void)
{
	file = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(file >= 0);
	for (uint32_t i = 0; i < FILE_NUMBERS; i++)
		write_all(file, &i, 4);
}

/* @end: behind the last number; 0: none. */
static void expect(int fd, uint32_t *next, uint32_t end)
{
	static uint32_t got[STEP];
	size_t have = 0;

	while (have < sizeof(got)) {
		ssize_t n = read(fd, (char *)got + have, sizeof(got) - have);

		CHECK(n > 0);
		have += (size_t)n;
	}
	for (size_t i = 0; i < STEP; i++) {
		CHECK(got[i] == *next);
		*next = end && *next + 1 == end ? 0 : *next + 1;
	}
}

int main(void)
{
	void *(*const workers[])(void *) = { feed, join_pipes, tee_and_move, send_file };
	uint32_t from_tee = 0, from_pipe = 0, from_file = 0;
	pthread_t t;

	file_make();
	CHECK(pipe(first) == 0 && pipe(second) == 0 && pipe(doubled) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, moved) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sent) == 0);
	for (size_t i = 0; i < sizeof(workers) / sizeof(*workers); i++)
		CHECK(pthread_create(&t, NULL, workers[i], NULL) == 0);
	feature_ready();
	do {
		expect(doubled[0], &from_tee, 0);
		expect(moved[1], &from_pipe, 0);
		expect(sent[1], &from_file, FILE_NUMBERS);
	} while (feature_step());
	return 0;
}
