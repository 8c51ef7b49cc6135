/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options of a socket that a program may have set and would miss. Each is recorded as it reads, whether set or not, and
 * set again where it differs from what the new socket has; one that this kernel does not know is left out. Buffer sizes are kept only where the program has set them
 * (SO_BUF_LOCK, kernel 5.14): others are the kernel's to tune. SO_REUSEADDR is socket.c's matter. The congestion control is kept where the host has it and lets the user choose it: what
 * goes through is the same under another; so are the mark for routes and busy polling, which are root's to choose. The interface that a socket is bound to is kept, but of connections: these
 * are made again where their other end is now.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/log.h"
#include "plugins/socket/socket.h"

/* Not in all of Debian 12's headers, or of later kernels. */
#define IPV6_FLOWINFO 11
#define IPV6_FLOWINFO_SEND 33
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_TXREHASH
#define SO_TXREHASH 74
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef IP_RECVFRAGSIZE
#define IP_RECVFRAGSIZE 25
#endif
#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

enum { ANY, INET, INET6, TCP, UNIX, UDP, UDP6, NETLINK, DEVICE }; /* which sockets have it */

static const struct option_kind {
	int level, name, length;
	uint8_t family;
	uint8_t early; /* matters before bind */
	uint8_t locked; /* only if this bit of SO_BUF_LOCK is set; reads twice what was set */
} kinds[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 4, INET, 1, 0 },
	{ SOL_SOCKET, SO_BINDTODEVICE, IFNAMSIZ, DEVICE, 1, 0 },
	{ SOL_SOCKET, SO_MARK, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_BUSY_POLL, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_PREFER_BUSY_POLL, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_BUSY_POLL_BUDGET, 2, INET, 0, 0 },
	{ SOL_SOCKET, SO_KEEPALIVE, 4, ANY, 0, 0 },
	{ SOL_SOCKET, SO_BROADCAST, 4, ANY, 0, 0 },
	{ SOL_SOCKET, SO_OOBINLINE, 4, ANY, 0, 0 },
	{ SOL_SOCKET, SO_LINGER, 8, ANY, 0, 0 },
	{ SOL_SOCKET, SO_RCVTIMEO, 16, ANY, 0, 0 },
	{ SOL_SOCKET, SO_SNDTIMEO, 16, ANY, 0, 0 },
	{ SOL_SOCKET, SO_RCVLOWAT, 4, ANY, 0, 0 },
	{ SOL_SOCKET, SO_SNDBUF, 4, ANY, 0, 1 },
	{ SOL_SOCKET, SO_RCVBUF, 4, ANY, 0, 2 },
	{ SOL_SOCKET, SO_PASSCRED, 4, UNIX, 0, 0 },
	{ SOL_SOCKET, SO_PEEK_OFF, 4, UNIX, 0, 0 },
	{ SOL_SOCKET, SO_REUSEADDR, 4, UDP, 1, 0 },
	{ SOL_SOCKET, SO_TIMESTAMP, 4, UDP, 0, 0 },
	{ SOL_SOCKET, SO_TIMESTAMPNS, 4, UDP, 0, 0 },
	{ SOL_SOCKET, SO_TIMESTAMPING, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_DONTROUTE, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_RXQ_OVFL, 4, UDP, 0, 0 },
	{ SOL_SOCKET, SO_NO_CHECK, 4, UDP, 0, 0 },
	{ SOL_SOCKET, SO_MAX_PACING_RATE, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_SELECT_ERR_QUEUE, 4, INET, 0, 0 },
	{ SOL_SOCKET, SO_TXREHASH, 4, TCP, 0, 0 },
	{ SOL_SOCKET, SO_LOCK_FILTER, 4, ANY, 0, 0 }, /* behind the filter */
	{ SOL_SOCKET, SO_PASSSEC, 4, UNIX, 0, 0 },
	{ SOL_SOCKET, SO_PASSPIDFD, 4, UNIX, 0, 0 },
	{ IPPROTO_IP, IP_FREEBIND, 4, INET, 1, 0 },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 4, INET, 1, 0 },
	{ IPPROTO_IP, IP_LOCAL_PORT_RANGE, 4, INET, 1, 0 },
	{ IPPROTO_IP, IP_TTL, 4, INET, 0, 0 },
	{ IPPROTO_IP, IP_MINTTL, 4, TCP, 0, 0 },
	{ IPPROTO_IP, IP_RECVORIGDSTADDR, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RECVOPTS, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RETOPTS, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_PASSSEC, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_CHECKSUM, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RECVFRAGSIZE, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_PKTINFO, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RECVTTL, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RECVTOS, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_RECVERR, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_MTU_DISCOVER, 4, INET, 0, 0 },
	{ IPPROTO_IP, IP_MULTICAST_TTL, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_MULTICAST_LOOP, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_MULTICAST_ALL, 4, UDP, 0, 0 },
	{ IPPROTO_IP, IP_MULTICAST_IF, 4, UDP, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_IF, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_TCLASS, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVTCLASS, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_FREEBIND, 4, INET6, 1, 0 },
	{ IPPROTO_IPV6, IPV6_FLOWINFO, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MINHOPCOUNT, 4, INET6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVERR, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVPATHMTU, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVRTHDR, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVHOPOPTS, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVDSTOPTS, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_DONTFRAG, 4, UDP6, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_ALL, 4, UDP6, 0, 0 },
	{ IPPROTO_UDP, UDP_SEGMENT, 4, UDP, 0, 0 },
	{ IPPROTO_UDP, UDP_GRO, 4, UDP, 0, 0 },
	{ IPPROTO_UDP, UDP_NO_CHECK6_TX, 4, UDP6, 0, 0 },
	{ IPPROTO_UDP, UDP_NO_CHECK6_RX, 4, UDP6, 0, 0 },
	{ SOL_NETLINK, NETLINK_PKTINFO, 4, NETLINK, 0, 0 },
	{ SOL_NETLINK, NETLINK_BROADCAST_ERROR, 4, NETLINK, 0, 0 },
	{ SOL_NETLINK, NETLINK_NO_ENOBUFS, 4, NETLINK, 0, 0 },
	{ SOL_NETLINK, NETLINK_CAP_ACK, 4, NETLINK, 0, 0 },
	{ SOL_NETLINK, NETLINK_EXT_ACK, 4, NETLINK, 0, 0 },
	{ SOL_NETLINK, NETLINK_GET_STRICT_CHK, 4, NETLINK, 0, 0 },
	{ IPPROTO_IPV6, IPV6_V6ONLY, 4, INET6, 1, 0 },
	{ IPPROTO_IP, IP_TOS, 4, INET, 0, 0 },
	{ IPPROTO_TCP, TCP_NODELAY, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_CORK, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPINTVL, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPCNT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_SYNCNT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_LINGER2, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_INQ, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_FASTOPEN, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_SAVE_SYN, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_CONGESTION, 16, TCP, 0, 0 },
	{ SOL_SOCKET, SO_PRIORITY, 4, ANY, 0, 0 }, /* which IP_TOS sets as well */
};

static bool applies(const struct option_kind *k, const struct socket_record *r)
{
	bool inet = r->domain == AF_INET || r->domain == AF_INET6;

	switch (k->family) {
	case INET:
		return inet;
	case INET6:
		return r->domain == AF_INET6;
	case TCP:
		return inet && r->type == SOCK_STREAM;
	case UNIX:
		return r->domain == AF_UNIX;
	case UDP:
		return socket_is_udp(r);
	case UDP6:
		return socket_is_udp(r) && r->domain == AF_INET6;
	case NETLINK:
		return r->domain == AF_NETLINK;
	case DEVICE: /* one that has none says nothing */
		return inet && (r->type != SOCK_STREAM || r->kind == SOCKET_FRESH || r->kind == SOCKET_LISTENING);
	default:
		return true;
	}
}

/* Who its other side is, as one option. How many options, or -errno. */
static int peer_dump(int fd, const struct socket_record *r, struct socket_option *o)
{
	int pid;

	if (r->kind != SOCKET_CONNECTED && r->kind != SOCKET_ORPHAN && r->kind != SOCKET_PENDING)
		return 0;
	pid = fermata_peer_pid(fd);
	*o = (struct socket_option){ .level = SOL_SOCKET, .name = SO_PEERCRED, .length = sizeof(pid) };
	memcpy(o->value, &pid, sizeof(pid));
	return pid < 0 ? pid : 1;
}

static int peer_restore(int fd, int number, const struct socket_option *o)
{
	int pid, r;

	memcpy(&pid, o->value, sizeof(pid));
	r = fermata_peer_restore(fd, pid);
	return r ? fermata_fail(r, "fd %d: that process %d is its peer cannot be noted in the runtime directory (errno %d): make room there", number, pid, -r) : 0;
}

/* What is joined, or attached, is not an option that reads back. */
static int add_others(int fd, const struct socket_record *r, struct socket_option *options, uint32_t n, uint32_t room)
{
	int more = socket_filter_dump(fd, options + n, room - n);

	if (more < 0)
		return more;
	n += (uint32_t)more;
	more = 0;
	if (r->domain == AF_UNIX && n < room)
		more = peer_dump(fd, r, options + n);
	else if (socket_is_udp(r))
		more = socket_udp_groups(fd, r, options + n, room - n);
	else if (r->domain == AF_NETLINK && n < room)
		more = socket_netlink_groups(fd, options + n);
	return more < 0 ? more : (int)n + more;
}

int socket_options_dump(int fd, const struct socket_record *r, struct socket_option *options, uint32_t room)
{
	int lock = socket_get_int(fd, SOL_SOCKET, SO_BUF_LOCK);
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && n < room; i++) {
		const struct option_kind *k = &kinds[i];
		struct socket_option *o = &options[n];
		int got;

		if (!applies(k, r) || (k->locked && (lock < 0 || !(lock & k->locked))))
			continue;
		*o = (struct socket_option){ .level = k->level, .name = k->name, .length = (uint32_t)k->length };
		got = socket_get(fd, k->level, k->name, o->value, o->length);
		if (got != k->length && (got <= 0 || k->family != DEVICE))
			continue;
		if (k->locked) {
			int size;

			memcpy(&size, o->value, sizeof(size));
			size /= 2; /* the kernel keeps twice what was asked for */
			memcpy(o->value, &size, sizeof(size));
		}
		n++;
	}
	return add_others(fd, r, options, n, room);
}

static const struct option_kind *kind_of(const struct socket_option *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].level == o->level && kinds[i].name == o->name)
			return &kinds[i];
	return NULL;
}

static bool is_group(const struct socket_option *o)
{
	return (o->level == IPPROTO_IP && o->name == IP_ADD_MEMBERSHIP) || (o->level == IPPROTO_IPV6 && o->name == IPV6_ADD_MEMBERSHIP) ||
	       (o->level == SOL_NETLINK && o->name == NETLINK_LIST_MEMBERSHIPS);
}

static bool is_peer(const struct socket_option *o)
{
	return o->level == SOL_SOCKET && o->name == SO_PEERCRED;
}

static int join(int fd, int number, const struct socket_option *o)
{
	int r = o->level == SOL_NETLINK ? socket_netlink_join(fd, o) : socket_set(fd, o->level, o->name, o->value, o->length);
	struct ip_mreqn inet;
	struct ipv6_mreq inet6;

	memcpy(&inet, o->value, sizeof(inet));
	memcpy(&inet6, o->value, sizeof(inet6));
	if (r >= 0)
		return 0;
	if (o->level == SOL_NETLINK)
		return fermata_fail(r, "fd %d: a group of its netlink socket cannot be joined again (errno %d)", number, -r);
	return fermata_fail(r, "fd %d: its multicast group at network interface %d cannot be joined again (errno %d): that interface has to be there",
			    number, o->level == IPPROTO_IP ? inet.imr_ifindex : (int)inet6.ipv6mr_interface, -r);
}

/* What it can go on without. Said once in a process, which may have thousands of sockets. */
static struct dispensable {
	int level, name;
	const char *what;
	bool said;
} dispensables[] = {
	{ IPPROTO_TCP, TCP_CONGESTION, "TCP congestion control", false },
	{ SOL_SOCKET, SO_MARK, "mark for routes (SO_MARK)", false },
	{ SOL_SOCKET, SO_BUSY_POLL, "busy polling (SO_BUSY_POLL)", false },
	{ SOL_SOCKET, SO_PREFER_BUSY_POLL, "busy polling (SO_PREFER_BUSY_POLL)", false },
	{ SOL_SOCKET, SO_BUSY_POLL_BUDGET, "busy polling (SO_BUSY_POLL_BUDGET)", false },
};

static int refused(int number, const struct socket_option *o, int err)
{
	for (struct dispensable *d = dispensables; d < dispensables + ARRAY_SIZE(dispensables); d++) {
		if (d->level != o->level || d->name != o->name)
			continue;
		if (!d->said)
			log_warn("fd %d: its %s is not to be had here (errno %d): it has the host's own", number, d->what, -err);
		d->said = true;
		return 0;
	}
	if (o->level == SOL_SOCKET && o->name == SO_BINDTODEVICE)
		return fermata_fail(err, "fd %d: its network interface, %.*s, cannot be had again (errno %d): it has to be there", number, IFNAMSIZ, (const char *)o->value, -err);
	return fermata_fail(err, "fd %d: option %d of level %d cannot be set again (errno %d)", number, o->name, o->level, -err);
}

int socket_options_restore(int fd, int number, const struct socket_option *o, uint32_t count, bool early)
{
	int err = early ? 0 : socket_filter_restore(fd, number, o, count);

	if (err)
		return err;
	for (uint32_t i = 0; i < count; i++, o++) {
		const struct option_kind *k = kind_of(o);
		uint8_t now[sizeof(o->value)];
		int r;

		if (is_group(o) || is_peer(o)) {
			r = early ? 0 : is_peer(o) ? peer_restore(fd, number, o) : join(fd, number, o);
			if (r < 0)
				return r;
			continue;
		}
		if (!k || o->length > sizeof(now) || k->early != early)
			continue;
		r = socket_get(fd, o->level, o->name, now, o->length);
		if (r == -ENOPROTOOPT || (!k->locked && r == (int)o->length && !memcmp(now, o->value, o->length)))
			continue;
		r = socket_set(fd, o->level, o->name, o->value, o->length);
		err = r < 0 ? refused(number, o, r) : 0;
		if (err)
			return err;
	}
	return 0;
}
