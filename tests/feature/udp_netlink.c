/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP sockets: bound, connected, with options and in multicast groups, IPv4 and IPv6, each sending to the other; and a netlink socket, which asks for the
 * interfaces and is in a group. Nothing is under way at a checkpoint that has to arrive: what does not come is sent again.
 */
#include "loopback.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>

static int server, client, six, netlink;
static struct sockaddr_in server_name, client_name;
static struct sockaddr_in6 six_name;

static void bind_udp(int fd, struct sockaddr_in *ret)
{
	bind_loopback(fd, ret);
	ret->sin_family = AF_INET;
}

static void set(int fd, int level, int name, int value)
{
	CHECK(setsockopt(fd, level, name, &value, sizeof(value)) == 0);
}

static int get(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = 0;

	CHECK(getsockopt(fd, level, name, &value, &len) == 0);
	return value;
}

static void join(void)
{
	struct ip_mreqn m = { .imr_ifindex = 1 };
	struct ipv6_mreq m6 = { .ipv6mr_interface = 1 };

	m.imr_multiaddr.s_addr = htonl(0xefff4d01);
	CHECK(setsockopt(server, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) == 0);
	memcpy(&m6.ipv6mr_multiaddr, "\xff\x12\0\0\0\0\0\0\0\0\0\0\0\0\x4d\x01", 16);
	CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof(m6)) == 0);
}

/* A group is left once only, and joined again. */
static void check_joined(void)
{
	struct ip_mreqn m = { .imr_ifindex = 1 };
	struct ipv6_mreq m6 = { .ipv6mr_interface = 1 };

	m.imr_multiaddr.s_addr = htonl(0xefff4d01);
	CHECK(setsockopt(server, IPPROTO_IP, IP_DROP_MEMBERSHIP, &m, sizeof(m)) == 0);
	memcpy(&m6.ipv6mr_multiaddr, "\xff\x12\0\0\0\0\0\0\0\0\0\0\0\0\x4d\x01", 16);
	CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &m6, sizeof(m6)) == 0);
	join();
}

static void make_netlink(void)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };

	CHECK((netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) >= 0);
	CHECK(bind(netlink, (struct sockaddr *)&a, sizeof(a)) == 0);
	set(netlink, SOL_NETLINK, NETLINK_EXT_ACK, 1);
}

/* Loopback's flags, by the kernel's answer. */
static void ask_netlink(uint32_t sequence)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
	} q = { { sizeof(q), RTM_GETLINK, NLM_F_REQUEST, sequence, 0 }, { .ifi_index = 1 } };
	struct nlmsghdr answer[1024];
	struct sockaddr_nl a;
	socklen_t len = sizeof(a);

	CHECK(send(netlink, &q, sizeof(q), 0) == sizeof(q));
	do
		CHECK(recv(netlink, answer, sizeof(answer), 0) > 0); /* reports may come, too */
	while (answer->nlmsg_seq != sequence);
	CHECK(answer->nlmsg_type == RTM_NEWLINK && ((struct ifinfomsg *)NLMSG_DATA(answer))->ifi_index == 1);
	CHECK(getsockname(netlink, (struct sockaddr *)&a, &len) == 0 && a.nl_groups == RTMGRP_LINK && a.nl_pid);
	CHECK(get(netlink, SOL_NETLINK, NETLINK_EXT_ACK) == 1);
}

static void build(void)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof(six_name);

	bind_udp(server = socket(AF_INET, SOCK_DGRAM, 0), &server_name);
	bind_udp(client = socket(AF_INET, SOCK_DGRAM, 0), &client_name);
	CHECK(connect(client, (struct sockaddr *)&server_name, sizeof(server_name)) == 0);
	CHECK((six = socket(AF_INET6, SOCK_DGRAM, 0)) >= 0);
	if (bind(six, (struct sockaddr *)&a, sizeof(a)))
		feature_skip("no IPv6 on loopback");
	CHECK(getsockname(six, (struct sockaddr *)&six_name, &len) == 0);
	set(server, SOL_SOCKET, SO_BROADCAST, 1);
	set(server, IPPROTO_IP, IP_MULTICAST_TTL, 7);
	set(server, IPPROTO_IP, IP_PKTINFO, 1);
	set(six, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	set(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 9);
	join();
	make_netlink();
}

/* Number @n from @from to @to, and its answer, each sent again until it comes; older ones are passed over. */
static void exchange(int from, int to, const struct sockaddr *name, socklen_t len, uint32_t n)
{
	struct sockaddr_storage a;
	struct pollfd p = { .fd = to, .events = POLLIN };
	uint32_t got = n + 1;

	while (got != n) {
		socklen_t alen = sizeof(a);

		CHECK(sendto(from, &n, 4, 0, name, len) == 4 || errno == ECONNREFUSED);
		while (got != n && poll(&p, 1, 50) > 0)
			CHECK(recvfrom(to, &got, 4, MSG_DONTWAIT, (struct sockaddr *)&a, &alen) == 4 || errno == EAGAIN); /* lost by a restart just here */
		if (got == n && to == server)
			CHECK(((struct sockaddr_in *)&a)->sin_port == client_name.sin_port);
	}
}

static void check(uint32_t n)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	exchange(client, server, NULL, 0, n);
	exchange(server, client, (struct sockaddr *)&client_name, sizeof(client_name), n);
	exchange(six, six, (struct sockaddr *)&six_name, sizeof(six_name), n);
	CHECK(getpeername(client, (struct sockaddr *)&a, &len) == 0 && a.sin_port == server_name.sin_port);
	CHECK(getpeername(server, (struct sockaddr *)&a, &len) == -1 && errno == ENOTCONN);
	CHECK(get(server, SOL_SOCKET, SO_BROADCAST) == 1 && get(server, IPPROTO_IP, IP_MULTICAST_TTL) == 7);
	CHECK(get(server, IPPROTO_IP, IP_PKTINFO) == 1 && get(six, IPPROTO_IPV6, IPV6_RECVPKTINFO) == 1);
	CHECK(get(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS) == 9);
	check_joined();
}

int main(void)
{
	uint32_t n = 0;

	build();
	feature_ready();
	do {
		feature_work();
		check(++n);
		if (n % 16 == 0)
			ask_netlink(n);
	} while (feature_step());
	return 0;
}
