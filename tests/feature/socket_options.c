/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options of sockets, each set to what it is not at first and read at every step: of TCP sockets that listen and that are connected, of UDP sockets, over IPv4 and IPv6, of unix sockets. What
 * this kernel does not have, or not for an ordinary user, is left out. The interface of those that are bound. And a filter that is locked.
 */
#include "feature.h"

#include <linux/filter.h>
#include <linux/in6.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { TCP = 1, LISTENS = 2, UDP = 4, UNIX = 8, FOUR = 16, SIX = 32 };
#define INET_TCP (TCP | LISTENS)
#define INET (INET_TCP | UDP)
#define BINDS (LISTENS | UDP) /* what matters to bind only means nothing to a connection */

static const struct option {
	int level, name, value;
	unsigned int kinds; /* sockets of these have it; FOUR, SIX: of this family only */
} options[] = {
	{ SOL_SOCKET, SO_KEEPALIVE, 1, INET_TCP }, { SOL_SOCKET, SO_OOBINLINE, 1, INET_TCP }, { SOL_SOCKET, SO_RCVLOWAT, 3, TCP | UNIX },
	{ SOL_SOCKET, SO_SNDBUF, 50000, INET | UNIX }, { SOL_SOCKET, SO_RCVBUF, 60000, INET | UNIX }, { SOL_SOCKET, SO_PRIORITY, 3, INET | UNIX },
	{ SOL_SOCKET, SO_DONTROUTE, 1, INET }, { SOL_SOCKET, SO_BROADCAST, 1, UDP }, { SOL_SOCKET, SO_RXQ_OVFL, 1, UDP }, { SOL_SOCKET, SO_TIMESTAMP, 1, UDP },
	{ SOL_SOCKET, SO_TIMESTAMPING, 0x18, INET }, { SOL_SOCKET, SO_NO_CHECK, 1, UDP | FOUR },
	{ SOL_SOCKET, SO_MAX_PACING_RATE, 1000000, INET }, { SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1, INET },
	{ SOL_SOCKET, SO_PASSCRED, 1, UNIX }, { SOL_SOCKET, SO_PASSSEC, 1, UNIX }, { SOL_SOCKET, 76 /* SO_PASSPIDFD */, 1, UNIX },
	{ SOL_SOCKET, SO_BUSY_POLL, 0, INET }, { SOL_SOCKET, 74 /* SO_TXREHASH */, 0, INET_TCP },
	{ IPPROTO_TCP, TCP_NODELAY, 1, INET_TCP }, { IPPROTO_TCP, TCP_KEEPIDLE, 77, INET_TCP }, { IPPROTO_TCP, TCP_KEEPINTVL, 7, INET_TCP },
	{ IPPROTO_TCP, TCP_KEEPCNT, 5, INET_TCP }, { IPPROTO_TCP, TCP_SYNCNT, 3, INET_TCP }, { IPPROTO_TCP, TCP_LINGER2, 7, INET_TCP },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 9000, INET_TCP }, { IPPROTO_TCP, TCP_NOTSENT_LOWAT, 20000, INET_TCP }, { IPPROTO_TCP, TCP_INQ, 1, INET_TCP },
	{ IPPROTO_TCP, TCP_FASTOPEN, 5, LISTENS }, { IPPROTO_TCP, TCP_DEFER_ACCEPT, 3, LISTENS }, { IPPROTO_TCP, TCP_SAVE_SYN, 1, LISTENS },
	{ IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1, INET_TCP }, { IPPROTO_TCP, TCP_TX_DELAY, 0, INET_TCP },
	{ IPPROTO_IP, IP_TTL, 33, INET | FOUR }, { IPPROTO_IP, IP_TOS, 0x10, INET | FOUR }, { IPPROTO_IP, IP_MINTTL, 2, INET_TCP | FOUR },
	{ IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT, INET | FOUR }, { IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, BINDS | FOUR },
	{ IPPROTO_IP, IP_FREEBIND, 1, BINDS | FOUR }, { IPPROTO_IP, IP_RECVERR, 1, UDP | FOUR }, { IPPROTO_IP, IP_RECVTTL, 1, UDP | FOUR },
	{ IPPROTO_IP, IP_RECVTOS, 1, UDP | FOUR }, { IPPROTO_IP, IP_RECVORIGDSTADDR, 1, UDP | FOUR }, { IPPROTO_IP, IP_PKTINFO, 1, UDP | FOUR },
	{ IPPROTO_IP, IP_RECVOPTS, 1, UDP | FOUR }, { IPPROTO_IP, IP_RETOPTS, 1, UDP | FOUR }, { IPPROTO_IP, IP_PASSSEC, 1, UDP | FOUR },
	{ IPPROTO_IP, IP_CHECKSUM, 1, UDP | FOUR }, { IPPROTO_IP, IP_MULTICAST_TTL, 4, UDP | FOUR }, { IPPROTO_IP, IP_MULTICAST_LOOP, 0, UDP | FOUR },
	{ IPPROTO_IP, IP_MULTICAST_ALL, 0, UDP | FOUR }, { IPPROTO_IP, 25 /* IP_RECVFRAGSIZE */, 1, UDP | FOUR }, { IPPROTO_IP, 51 /* IP_LOCAL_PORT_RANGE */, 0x9c408000, BINDS | FOUR },
	{ IPPROTO_UDP, UDP_SEGMENT, 1200, UDP }, { IPPROTO_UDP, UDP_GRO, 1, UDP }, { IPPROTO_UDP, UDP_NO_CHECK6_TX, 1, UDP | SIX },
	{ IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, UDP | SIX },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, 44, INET | SIX }, { IPPROTO_IPV6, IPV6_TCLASS, 0x20, INET | SIX }, { IPPROTO_IPV6, IPV6_V6ONLY, 1, INET | SIX },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DONT, INET | SIX }, { IPPROTO_IPV6, IPV6_RECVERR, 1, UDP | SIX }, { IPPROTO_IPV6, IPV6_RECVTCLASS, 1, INET | SIX },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, INET | SIX }, { IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1, INET | SIX }, { IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1, UDP | SIX },
	{ IPPROTO_IPV6, IPV6_RECVPATHMTU, 1, UDP | SIX }, { IPPROTO_IPV6, IPV6_RECVRTHDR, 1, UDP | SIX }, { IPPROTO_IPV6, IPV6_RECVHOPOPTS, 1, UDP | SIX },
	{ IPPROTO_IPV6, IPV6_RECVDSTOPTS, 1, UDP | SIX }, { IPPROTO_IPV6, IPV6_FLOWINFO, 1, INET | SIX }, { IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1, INET | SIX },
	{ IPPROTO_IPV6, IPV6_DONTFRAG, 1, UDP | SIX }, { IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0, INET | SIX }, { IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 5, UDP | SIX },
	{ IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0, UDP | SIX }, { IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, UDP | SIX }, { IPPROTO_IPV6, IPV6_MINHOPCOUNT, 2, INET_TCP | SIX },
	{ IPPROTO_IPV6, IPV6_FREEBIND, 1, BINDS | SIX },
	{ IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 1, UDP | SIX },
};
#define OPTIONS (sizeof(options) / sizeof(*options))

struct sock {
	int fd;
	unsigned int kind;
	char name[12];
	int has[OPTIONS], value[OPTIONS];
};
static struct sock socks[10];
static int count;
static char congestion[16];
static int bound[4]; /* to the loopback interface */
static unsigned int bound_count;

static int get(const struct sock *s, size_t i, int *ret)
{
	socklen_t len = sizeof(*ret);

	*ret = 0;
	return getsockopt(s->fd, options[i].level, options[i].name, ret, &len) == 0 && len <= sizeof(*ret);
}

static void add(int fd, unsigned int kind, const char *name)
{
	struct sock *s = &socks[count++];

	CHECK(fd >= 0);
	s->fd = fd;
	s->kind = kind;
	strcpy(s->name, name);
	for (size_t i = 0; i < OPTIONS; i++) {
		unsigned int family = options[i].kinds & (FOUR | SIX);

		if (!(options[i].kinds & kind & ~(FOUR | SIX)) || (family && !(kind & family)))
			continue;
		s->has[i] = setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) == 0;
	}
	for (size_t i = 0; i < OPTIONS; i++) /* some set others as well */
		s->has[i] = s->has[i] && get(s, i, &s->value[i]);
}

static void options_check(const struct sock *s)
{
	int now, lost = 0;
	char text[400] = "";

	for (size_t i = 0; i < OPTIONS; i++)
		if (s->has[i] && (!get(s, i, &now) || now != s->value[i]) && ++lost < 12)
			sprintf(text + strlen(text), " %d/%d: %d, was %d;", options[i].level, options[i].name, now, s->value[i]);
	if (lost)
		feature_fail("%d options of %s are lost:%s", lost, s->name, text);
}

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* To a port as loopback.h has them. False: the family is not there. */
static int bind_somewhere(int fd, int family, union address *ret)
{
	int r = -1;

	for (unsigned int i = 0; r && i < 100; i++) {
		memset(ret, 0, sizeof(*ret));
		ret->any.sa_family = (sa_family_t)family;
		ret->four.sin_port = htons((uint16_t)(10000 + ((unsigned int)getpid() * 7 + i) % 12000)); /* where sin6_port is */
		if (family == AF_INET)
			ret->four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else
			ret->six.sin6_addr = in6addr_loopback;
		r = bind(fd, &ret->any, sizeof(*ret));
	}
	return r == 0;
}

static int device_is(int fd, const char *want)
{
	char name[IFNAMSIZ] = "";

	return getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &(socklen_t){ sizeof(name) }) == 0 && !strcmp(name, want);
}

/* Linux 5.7 lets an ordinary user. */
static void device_set(int fd)
{
	if (bound_count < sizeof(bound) / sizeof(*bound) && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0)
		bound[bound_count++] = fd;
}

static void inet(int family, unsigned int kind)
{
	int listens = socket(family, SOCK_STREAM, 0), udp = socket(family, SOCK_DGRAM, 0), client = socket(family, SOCK_STREAM, 0);
	union address a;

	if (listens < 0 || !bind_somewhere(listens, family, &a))
		return;
	CHECK(listen(listens, 5) == 0 && connect(client, &a.any, sizeof(a)) == 0);
	add(accept(listens, NULL, NULL), kind | TCP, "accepted");
	add(client, kind | TCP, "connected");
	add(listens, kind | LISTENS, "listening");
	add(udp, kind | UDP, "datagrams");
	device_set(listens);
	device_set(udp);
}

/* What is not the host's own. */
static void congestion_set(int fd)
{
	const char *other;

	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &(socklen_t){ sizeof(congestion) }) == 0);
	other = strcmp(congestion, "reno") ? "reno" : "cubic";
	if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other, (socklen_t)strlen(other)))
		strcpy(congestion, other);
}

static void congestion_check(int fd)
{
	char now[16] = "";

	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &(socklen_t){ sizeof(now) }) == 0 && !strcmp(now, congestion));
}

/* Lets through what begins with an x. */
static void attach(int fd)
{
	struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1), BPF_STMT(BPF_RET | BPF_K, 0xffff),
				      BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog all = { 4, code };
	int one = 1;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one)) == 0);
}

/* One that had passed stays in between, for the next step. */
static void filter_check(const int pair[2])
{
	char c;
	int one = 1;

	CHECK(send(pair[0], "y", 1, 0) == 1 && send(pair[0], "x", 1, 0) == 1);
	CHECK(recv(pair[1], &c, 1, 0) == 1 && c == 'x');
	CHECK(setsockopt(pair[1], SOL_SOCKET, SO_DETACH_FILTER, &one, sizeof(one)) == -1 && errno == EPERM);
}

int main(void)
{
	int pair[2], filtered[2];

	inet(AF_INET, FOUR);
	inet(AF_INET6, SIX);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	add(pair[0], UNIX, "stream");
	add(socket(AF_UNIX, SOCK_DGRAM, 0), UNIX, "datagram");
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, filtered) == 0 && send(filtered[0], "x", 1, 0) == 1);
	attach(filtered[1]);
	congestion_set(socks[0].fd);
	feature_ready();
	do {
		for (int i = 0; i < count; i++)
			options_check(&socks[i]);
		congestion_check(socks[0].fd);
		for (unsigned int i = 0; i < bound_count; i++)
			CHECK(device_is(bound[i], "lo"));
		filter_check(filtered);
		feature_work();
	} while (feature_step());
	return 0;
}
