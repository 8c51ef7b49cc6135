/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP sockets with datagrams in their queues at any moment: bound to one address and to all, of IPv4, IPv6 and both, connected and not; from a socket of the job at one address or at all, of a
 * child's, and from one that is closed. Each is received once, in its sender's order, with its bytes, from where and to where it was sent.
 */
#include "feature.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ROUNDS 4 /* datagrams in each queue at a time */
#define LARGE 60000

union name {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static struct place {
	int fd;
	union name name; /* port and, but for those that have all, address */
} one, all, six, both, linked, peer, wild;

static int orders[2], done[2]; /* of the child, and its answers */
static pid_t child;
static in_port_t child_port;

/* At @address, on a port that none has had before it. */
static struct place at(union name address, socklen_t len)
{
	static unsigned int next;
	struct place p = { socket(address.any.sa_family, SOCK_DGRAM, 0), address };
	int r = -1;

	CHECK(p.fd >= 0);
	for (unsigned int i = 0; r && i < 100; i++) {
		p.name.in.sin_port = htons((uint16_t)(10000 + ((unsigned int)getpid() * 7 + next++) % 12000)); /* below those that the kernel hands out: loopback.h */
		r = bind(p.fd, &p.name.any, len);
		if (r && errno == EADDRNOTAVAIL)
			feature_skip("no IPv6 on loopback");
		CHECK(!r || errno == EADDRINUSE);
	}
	CHECK(r == 0);
	return p;
}

static struct place at4(uint32_t address)
{
	return at((union name){ .in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(address) } }, sizeof(struct sockaddr_in));
}

static struct place at6(const struct in6_addr *address)
{
	return at((union name){ .in6 = { .sin6_family = AF_INET6, .sin6_addr = *address } }, sizeof(struct sockaddr_in6));
}

static size_t length_of(uint32_t n)
{
	return n % 7 == 3 ? LARGE : 1 + n * 37 % 600;
}

static void fill(uint8_t *bytes, uint32_t n)
{
	for (size_t i = 0; i < length_of(n); i++)
		bytes[i] = (uint8_t)(n * 7 + i);
}

static uint8_t bytes[LARGE + 1], want[LARGE + 1];

/* To the host's own @address at @port, as a socket of IPv4 says it. */
static void put4(int fd, uint32_t address, in_port_t port, uint32_t n)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(address) };

	fill(bytes, n);
	CHECK(sendto(fd, bytes, length_of(n), 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)length_of(n));
}

static void put6(int fd, const union name *to, uint32_t n)
{
	fill(bytes, n);
	CHECK(sendto(fd, bytes, length_of(n), 0, &to->any, sizeof(to->in6)) == (ssize_t)length_of(n));
}

/* Number @n, as it was sent from @port; @ret_from: the whole name of that. @ret_to: where to, if the socket asks. */
static void get(int fd, in_port_t port, uint32_t n, union name *ret_from, struct in_addr *ret_to)
{
	uint8_t control[256] __attribute__((aligned(8)));
	struct iovec v = { bytes, sizeof(bytes) };
	struct msghdr m = { ret_from, sizeof(*ret_from), &v, 1, control, sizeof(control), 0 };
	ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	fill(want, n);
	if (got != (ssize_t)length_of(n) || memcmp(bytes, want, length_of(n)))
		feature_fail("fd %d: datagram %u has %zd bytes, the first is %d (errno %d)", fd, n, got, got > 0 ? bytes[0] : -1, errno);
	CHECK(ret_from->in.sin_port == port);
	if (!ret_to)
		return;
	CHECK(c && c->cmsg_level == SOL_IP && c->cmsg_type == IP_PKTINFO && !CMSG_NXTHDR(&m, c));
	*ret_to = ((struct in_pktinfo *)(void *)CMSG_DATA(c))->ipi_addr;
}

static void expect_empty(int fd)
{
	CHECK(recv(fd, bytes, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

/* Sends to the socket that has all addresses, when it is told to. */
static void serve(void)
{
	struct place own = at4(0x7f000003);
	uint32_t n;

	CHECK(write(done[1], &own.name.in.sin_port, sizeof(in_port_t)) == sizeof(in_port_t));
	while (read(orders[0], &n, sizeof(n)) == sizeof(n)) {
		put4(own.fd, INADDR_LOOPBACK, all.name.in.sin_port, n);
		CHECK(write(done[1], "", 1) == 1);
	}
	_exit(0);
}

static void build(void)
{
	static const int yes = 1;

	one = at4(INADDR_LOOPBACK);
	all = at4(INADDR_ANY);
	wild = at4(INADDR_ANY);
	linked = at4(INADDR_LOOPBACK);
	peer = at4(0x7f000002);
	six = at6(&in6addr_loopback);
	both = at6(&in6addr_any);
	CHECK(connect(linked.fd, &peer.name.any, sizeof(peer.name.in)) == 0);
	CHECK(setsockopt(all.fd, SOL_IP, IP_PKTINFO, &yes, sizeof(yes)) == 0);
	CHECK(pipe(orders) == 0 && pipe(done) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(close(orders[1]) == 0);
		serve();
	}
	CHECK(close(orders[0]) == 0 && read(done[0], &child_port, sizeof(child_port)) == sizeof(child_port));
}

/* From a socket that is gone at once: its port. */
static in_port_t put_and_close(uint32_t n)
{
	struct place p = at4(INADDR_LOOPBACK);

	put4(p.fd, INADDR_LOOPBACK, one.name.in.sin_port, n);
	CHECK(close(p.fd) == 0);
	return p.name.in.sin_port;
}

static in_port_t closed[ROUNDS];

static void put_all(uint32_t n)
{
	char c;

	put4(wild.fd, INADDR_LOOPBACK, one.name.in.sin_port, n);
	closed[n % ROUNDS] = put_and_close(n);
	put4(one.fd, 0x7f000005, all.name.in.sin_port, n);
	CHECK(write(orders[1], &n, sizeof(n)) == sizeof(n) && read(done[0], &c, 1) == 1);
	put4(peer.fd, INADDR_LOOPBACK, linked.name.in.sin_port, n);
	put6(both.fd, &six.name, n);
	put4(one.fd, INADDR_LOOPBACK, both.name.in6.sin6_port, n);
	put4(linked.fd, INADDR_LOOPBACK, both.name.in6.sin6_port, n);
}

static void get_all(uint32_t n)
{
	static const uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };
	union name from;
	struct in_addr to;

	get(one.fd, wild.name.in.sin_port, n, &from, NULL);
	CHECK(from.in.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	get(one.fd, closed[n % ROUNDS], n, &from, NULL);
	CHECK(from.in.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	get(all.fd, one.name.in.sin_port, n, &from, &to);
	CHECK(from.in.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && to.s_addr == htonl(0x7f000005));
	get(all.fd, child_port, n, &from, &to);
	CHECK(from.in.sin_addr.s_addr == htonl(0x7f000003) && to.s_addr == htonl(INADDR_LOOPBACK));
	get(linked.fd, peer.name.in.sin_port, n, &from, NULL);
	CHECK(from.in.sin_addr.s_addr == peer.name.in.sin_addr.s_addr);
	get(six.fd, both.name.in6.sin6_port, n, &from, NULL);
	CHECK(!memcmp(&from.in6.sin6_addr, &in6addr_loopback, 16));
	get(both.fd, one.name.in.sin_port, n, &from, NULL);
	CHECK(!memcmp(&from.in6.sin6_addr, mapped, 16));
	get(both.fd, linked.name.in.sin_port, n, &from, NULL);
	CHECK(!memcmp(&from.in6.sin6_addr, mapped, 16));
}

int main(void)
{
	uint32_t sent = 0, got = 0;
	int status;

	build();
	while (sent < ROUNDS - 1)
		put_all(sent++);
	feature_ready();
	do {
		put_all(sent++);
		feature_work();
		get_all(got++);
	} while (feature_step());
	while (got < sent)
		get_all(got++);
	expect_empty(one.fd);
	expect_empty(all.fd);
	expect_empty(linked.fd);
	expect_empty(six.fd);
	expect_empty(both.fd);
	CHECK(close(orders[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
