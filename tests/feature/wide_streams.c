/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TCP connection whose buffers have become as large as the kernel lets them be, by what has moved fast, and by a low-water mark: full both ways, tens of MiB, which nobody reads until
 * the end. How much a buffer of one size holds depends on how the bytes have come.
 */
#include "loopback.h"

#include <netinet/tcp.h>
#include <poll.h>

#define MOVED (100u << 20) /* bytes each way, before it is left full */
#define IDLE 300 /* ms in which nothing more fits */

static int ends[2];
static uint64_t put[2], got[2]; /* by the end that writes */
static char buf[1 << 18];

/* Whether @events come at one end or the other within @ms. */
static int await(short events, int ms)
{
	struct pollfd p[2] = { { .fd = ends[0], .events = events }, { .fd = ends[1], .events = events } };
	int n = poll(p, 2, ms);

	CHECK(n >= 0);
	return n;
}

static char byte_at(uint64_t at)
{
	return (char)(at * 31 + at / 4093);
}

static void fill(int from)
{
	for (;;) {
		ssize_t n;

		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = byte_at(put[from] + i);
		n = write(ends[from], buf, sizeof(buf));
		if (n == -1 && errno == EAGAIN)
			return;
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
	while (got[from] < put[from]) {
		await(POLLIN, -1);
		take(from);
	}
}

static void widen(int fd)
{
	int all = 0x3fffffff, one = 1;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &all, sizeof(all)) == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)) == 0);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &all, sizeof(all)) == 0);
}

int main(void)
{
	connect_loopback(ends);
	CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
	for (int from = 0; from < 2; from++) {
		widen(ends[!from]);
		while (put[from] < MOVED) {
			fill(from);
			take(from);
		}
		take_all(from);
	}
	do {
		fill(0);
		fill(1);
	} while (await(POLLOUT, IDLE));
	feature_ready();
	do {
		fill(0);
		fill(1);
		feature_work();
	} while (feature_step());
	take_all(0);
	take_all(1);
	return 0;
}
