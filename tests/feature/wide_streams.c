/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TCP connection whose buffers have become as large as the kernel lets them be, by what has moved fast, and by a low-water mark: full both ways, tens of MiB, which nobody reads until
 * the end. How much a buffer of one size holds depends on how the bytes have come.
 */
#include "feature.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define MOVED (100u << 20) /* bytes each way, before it is left full */
#define IDLE 300 /* ms in which nothing more fits */

static int ends[2];
static uint64_t put[2], got[2]; /* by the end that writes */
static char buf[1 << 18];

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

static char byte_at(uint64_t at)
{
	return (char)(at * 31 + at / 4093);
}

static uint64_t fill(int from)
{
	uint64_t before = put[from];

	for (;;) {
		ssize_t n;

		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = byte_at(put[from] + i);
		n = write(ends[from], buf, sizeof(buf));
		if (n == -1 && errno == EAGAIN)
			return put[from] - before;
		CHECK(n > 0);
		put[from] += (uint64_t)n;
	}
}

static void take(int from)
{
	ssize_t n;

	while ((n = read(ends[!from], buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			CHECK(buf[i] == byte_at(got[from] + (uint64_t)i));
		got[from] += (uint64_t)n;
	}
	CHECK(n == -1 && errno == EAGAIN);
}

static void take_all(int from)
{
	for (; got[from] < put[from]; nap())
		take(from);
}

static void connect_ends(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(l, (struct sockaddr *)&a, len) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &len) == 0);
	CHECK((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(ends[0], (struct sockaddr *)&a, len) == 0);
	CHECK((ends[1] = accept(l, NULL, NULL)) >= 0 && close(l) == 0);
	CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
}

static void widen(int fd)
{
	int all = 0x3fffffff, one = 1;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &all, sizeof(all)) == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)) == 0);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &all, sizeof(all)) == 0);
}

int main(void)
{
	connect_ends();
	for (int from = 0; from < 2; from++) {
		widen(ends[!from]);
		while (put[from] < MOVED) {
			fill(from);
			take(from);
		}
		take_all(from);
	}
	for (int idle = 0; idle < IDLE; nap())
		idle = fill(0) + fill(1) ? 0 : idle + 1;
	feature_ready();
	do {
		fill(0);
		fill(1);
		nap();
	} while (feature_step());
	take_all(0);
	take_all(1);
	return 0;
}
