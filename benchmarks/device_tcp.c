/* SPDX-License-Identifier: BSD-2-Clause */
/* What TCP over the loopback takes. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

#define ROUNDS 2001

static ssize_t put(int fd, void *buf, size_t n)
{
	return write(fd, buf, n);
}

/* 0 when the other end is gone. */
static int all(int fd, char *buf, size_t n, ssize_t (*move)(int, void *, size_t))
{
	while (n) {
		ssize_t got = move(fd, buf, n);

		if (got <= 0)
			return 0;
		buf += got;
		n -= (size_t)got;
	}
	return 1;
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

double device_tcp(size_t size)
{
	char *buf = calloc(1, size);
	double took[ROUNDS];
	int fd[2], i;

	if (!buf || connected(fd)) {
		perror("TCP");
		_exit(1);
	}
	if (!device_fork()) {
		close(fd[0]);
		while (all(fd[1], buf, size, read) && all(fd[1], buf, size, put))
			;
		_exit(0);
	}
	close(fd[1]);
	for (i = 0; i < ROUNDS; i++) {
		double start = bench_now();

		if (!all(fd[0], buf, size, put) || !all(fd[0], buf, size, read))
			_exit(1);
		took[i] = bench_now() - start;
	}
	close(fd[0]);
	device_wait();
	free(buf);
	return bench_median(took, ROUNDS) / 2;
}
