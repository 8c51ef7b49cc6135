/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What TCP over the loopback takes: a message of a size goes there and back between two processes with TCP_NODELAY.
 * Usage: softrdma_tcp [BYTES]. Prints one line, one number: microseconds one way (half of the median round trip).
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_time.h"

#define ROUNDS 2001

static void all(int fd, char *buf, size_t n, ssize_t (*move)(int, void *, size_t))
{
	while (n) {
		ssize_t got = move(fd, buf, n);

		if (got <= 0)
			_exit(1);
		buf += got;
		n -= (size_t)got;
	}
}

static ssize_t put(int fd, void *buf, size_t n)
{
	return write(fd, buf, n);
}

static int connected(int ret[2])
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (l < 0 || bind(l, (struct sockaddr *)&sa, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&sa, &len))
		return -1;
	ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ret[0] < 0 || connect(ret[0], (struct sockaddr *)&sa, len))
		return -1;
	ret[1] = accept(l, NULL, NULL);
	close(l);
	setsockopt(ret[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return ret[1] < 0 ? -1 : setsockopt(ret[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoull(argv[1], NULL, 0) : 8;
	char *buf = calloc(1, size);
	static double took[ROUNDS];
	int fd[2], i;

	if (!size || !buf || connected(fd)) {
		perror("softrdma_tcp");
		return 1;
	}
	if (!fork()) {
		close(fd[0]);
		for (;;) {
			all(fd[1], buf, size, read);
			all(fd[1], buf, size, put);
		}
	}
	close(fd[1]);
	for (i = 0; i < ROUNDS; i++) {
		double start = bench_now();

		all(fd[0], buf, size, put);
		all(fd[0], buf, size, read);
		took[i] = bench_now() - start;
	}
	printf("%.3f\n", bench_median(took, ROUNDS) * 1e6 / 2);
	return 0;
}
