/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies unread in a UDP socket. Datagrams may be lost, but between sockets of one host none is while there is room, and programs have come to count on it. So a restart sends each again, to
 * where it was sent, by the socket of the job that has its sender's address, or by one made for the moment. No state.
 *
 * At a checkpoint SO_PEEK_OFF leads along the queue: a look at a datagram moves it on by all of it, be there room or not, so each is looked at once. Where it was sent to the kernel tells with it
 * (IP_RECVORIGDSTADDR). The options are the program's again afterwards. Rounds: 0 looks, and asks who has the senders' addresses, 1 reads the answers.
 *
 * Lost at a restart, as datagrams may be: those that did not go from an address of this host to one of it (another host's, a group's); behind an error that the program has not been told of; in a
 * socket for which the kernel puts several together (UDP_GRO); from others than the peer in one that is connected; an empty one that a checkpoint before has looked at, as it is not shown again.
 */
#include <errno.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define DATAGRAM_MAX 65536u

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static bool is_inet(const struct socket_end *e)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(e->address, mapped, sizeof(mapped));
}

/* An address of this host, and of nobody else. */
static bool is_here(const struct socket_end *e)
{
	static const uint8_t loopback[16] = { [15] = 1 };
	uint8_t all[SOCKET_ADDRESSES][16];
	uint32_t n;

	if (is_inet(e) && e->address[12] == 127)
		return memcmp(e->address + 13, "\xff\xff\xff", 3) != 0;
	if (!memcmp(e->address, loopback, sizeof(loopback)))
		return true;
	n = socket_addresses(!is_inet(e), all);
	while (n--)
		if (!memcmp(all[n], e->address, sizeof(all[n])))
			return true;
	return false;
}

/* ---- names, by which senders are found ---- */

struct key {
	uint16_t family; /* so that it is no name of a unix socket */
	struct socket_end end;
	uint64_t network; /* each has a loopback */
} PACKED;

static struct socket_name key_name(uint64_t network, struct socket_end e)
{
	const struct key k = { AF_INET6, e, network };
	struct socket_name n = { .length = sizeof(k) };

	memcpy(n.bytes, &k, sizeof(k));
	return n;
}

/* Under which names who sends from @e may be known: its own, or one of those that stand for all addresses. */
static unsigned int names_of(uint64_t network, const struct socket_end *e, struct socket_name ret[3])
{
	struct socket_end any4 = { .address = { [10] = 0xff, [11] = 0xff }, .port = e->port }, any6 = { .port = e->port };
	unsigned int n = 0;

	ret[n++] = key_name(network, *e);
	if (is_inet(e))
		ret[n++] = key_name(network, any4);
	ret[n++] = key_name(network, any6);
	return n;
}

int socket_udp_publish(const struct socket_record *r)
{
	const struct socket_end e = socket_end_of(&r->local);
	struct socket_name n;

	if (!e.port)
		return 0;
	n = key_name(socket_network(), e);
	return socket_name_publish(r->maker_fd, &n);
}

/* ---- a checkpoint ---- */

struct ends {
	struct socket_end from, to;
} PACKED;

static const struct ends *ends_of(const struct socket_message *m)
{
	return m->name_length == sizeof(struct ends) && !m->fd_count ? (const void *)(m + 1) : NULL;
}

static struct socket_end destination(struct msghdr *m, const struct socket_record *r)
{
	struct socket_name n = r->local;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR) || (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR))
			memcpy(n.bytes, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0) < sizeof(n.bytes) ? c->cmsg_len - CMSG_LEN(0) : sizeof(n.bytes));
	return socket_end_of(&n);
}

/* The next datagram: its length, or -errno. */
static long look(int fd, const struct socket_record *r, char *bytes, struct ends *ret)
{
	uint8_t control[512] __attribute__((aligned(8)));
	struct iovec v = { bytes, DATAGRAM_MAX };
	struct socket_name from = { 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	long got;

	do {
		m.msg_name = from.bytes;
		m.msg_namelen = sizeof(from.bytes);
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		got = RAW3(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);
	} while (got == -EINTR);
	if (got < 0)
		return got;
	ret->from = socket_end_of(&from);
	ret->to = destination(&m, r);
	return got;
}

static bool is_kept(const struct socket_record *r, const struct ends *e)
{
	const struct socket_end peer = socket_end_of(&r->remote);

	if (r->kind == SOCKET_NAMED && memcmp(&peer, &e->from, sizeof(peer)) != 0)
		return false;
	return e->from.port && is_here(&e->from) && is_here(&e->to);
}

static int note(struct socket_messages *all, const struct ends *e, const char *bytes, size_t n)
{
	struct socket_message m = { .length = (uint32_t)n, .name_length = sizeof(*e) };
	const size_t whole = sizeof(m) + sizeof(*e) + n;
	int r = socket_messages_reserve(all, whole + 8);

	if (r)
		return r;
	m.size = (uint32_t)ALIGN_UP(whole, (size_t)8);
	memset(all->bytes + all->length, 0, m.size);
	memcpy(all->bytes + all->length, &m, sizeof(m));
	memcpy(all->bytes + all->length + sizeof(m), e, sizeof(*e));
	memcpy(all->bytes + all->length + sizeof(m) + sizeof(*e), bytes, n);
	all->length += m.size;
	return 0;
}

static int look_at_all(int fd, struct socket_state *s, char *bytes)
{
	struct ends e;
	long got = 0;
	int r = 0;

	while (!r && (got = look(fd, &s->record, bytes, &e)) >= 0)
		if (is_kept(&s->record, &e))
			r = note(&s->messages, &e, bytes, (size_t)got);
	return r;
}

/* The options that a look needs, and what the program has. */
static const struct {
	int level, name, wanted;
} needed[] = { { SOL_IP, IP_RECVORIGDSTADDR, 1 }, { SOL_IPV6, IPV6_RECVORIGDSTADDR, 1 }, { SOL_SOCKET, SO_PEEK_OFF, 0 } };

static int look_along(int fd, struct socket_state *s)
{
	int own[ARRAY_SIZE(needed)] = { 0 }, set = 0, r;
	char *bytes = fermata_alloc(DATAGRAM_MAX);

	if (!bytes)
		return fermata_fail(-ENOMEM, "no memory for what is queued in fd %d", fd);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		socket_get(fd, needed[i].level, needed[i].name, &own[i], sizeof(own[i]));
		set = socket_set_int(fd, needed[i].level, needed[i].name, needed[i].wanted); /* the last matters: without it there would be no end */
	}
	r = set ? 0 : look_at_all(fd, s, bytes);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		socket_set_int(fd, needed[i].level, needed[i].name, own[i]);
	fermata_free(bytes);
	return r ? fermata_fail(r, "what is queued in fd %d cannot be copied (errno %d)", fd, -r) : 0;
}

/* Once for a run of one sender's. */
static int ask(const struct socket_messages *all)
{
	const uint64_t network = all->length ? socket_network() : 0;
	const struct socket_end *from = NULL, *last = NULL;
	const struct socket_message *m;
	struct socket_name names[3];
	int r = 0;

	for (size_t at = 0; !r && (m = socket_message_next(all->bytes, all->length, &at)); last = from) {
		from = &ends_of(m)->from;
		if (last && !memcmp(from, last, sizeof(*from)))
			continue;
		for (unsigned int n = names_of(network, from, names); !r && n--;)
			r = socket_name_ask(&names[n]);
	}
	return r ? r : all->length ? FERMATA_DRAIN_MORE : FERMATA_DRAINED;
}

static void answer(struct socket_messages *all)
{
	const uint64_t network = all->length ? socket_network() : 0;
	const struct socket_message *next;
	struct socket_name names[3];

	for (size_t at = 0; (next = socket_message_next(all->bytes, all->length, &at));) {
		struct socket_message *m = (void *)(all->bytes + (at - next->size));
		unsigned int n = names_of(network, &ends_of(m)->from, names);

		for (unsigned int i = 0; i < n && !m->sender_pid; i++)
			socket_name_resolve(&names[i], &m->sender_pid, &m->sender_fd);
	}
}

int socket_udp_drain(const struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	int events, r;

	if (round) {
		answer(&s->messages);
		return FERMATA_DRAINED;
	}
	events = socket_poll(d->fd, POLLIN, 0);
	if (events <= 0 || events & POLLERR || !(events & POLLIN) || socket_get_int(d->fd, IPPROTO_UDP, UDP_GRO) > 0)
		return FERMATA_DRAINED;
	r = look_along(d->fd, s);
	return r ? r : ask(&s->messages);
}

/* ---- a restart ---- */

/* @e as a socket of @domain knows it: its length; 0: it cannot. */
static socklen_t address_of(int domain, const struct socket_end *e, union address *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->in6.sin6_family = (sa_family_t)domain;
	ret->in6.sin6_port = e->port;
	if (domain == AF_INET6) {
		memcpy(&ret->in6.sin6_addr, e->address, 16);
		return sizeof(ret->in6);
	}
	memcpy(&ret->in.sin_addr, e->address + 12, 4);
	return is_inet(e) ? sizeof(ret->in) : 0;
}

/* A socket for the moment at the address of one that is gone, or not of the job. */
static int stand_in(const struct socket_end *e)
{
	int domain = is_inet(e) ? AF_INET : AF_INET6, fd = (int)RAW3(SYS_socket, domain, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;
	union address a;

	if (fd < 0)
		return fd;
	r = (int)RAW3(SYS_bind, fd, &a, address_of(domain, e, &a));
	if (!r)
		return fd;
	raw_close(fd);
	return r;
}

/* From that very address, also where the socket has all of this host. */
static size_t put_source(int domain, const union address *from, struct cmsghdr *c)
{
	struct in6_pktinfo i6 = { .ipi6_addr = from->in6.sin6_addr };
	struct in_pktinfo i4 = { .ipi_spec_dst = from->in.sin_addr };

	if (domain == AF_INET6) {
		*c = (struct cmsghdr){ CMSG_LEN(sizeof(i6)), SOL_IPV6, IPV6_PKTINFO };
		memcpy(CMSG_DATA(c), &i6, sizeof(i6));
		return CMSG_SPACE(sizeof(i6));
	}
	*c = (struct cmsghdr){ CMSG_LEN(sizeof(i4)), SOL_IP, IP_PKTINFO };
	memcpy(CMSG_DATA(c), &i4, sizeof(i4));
	return CMSG_SPACE(sizeof(i4));
}

static int send_again(int fd, const struct ends *e, const char *bytes, size_t n)
{
	uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo))] __attribute__((aligned(8))) = { 0 };
	int domain = socket_get_int(fd, SOL_SOCKET, SO_DOMAIN);
	struct iovec v = { (void *)(uintptr_t)bytes, n };
	union address from, to;
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_name = &to };
	long r;

	m.msg_namelen = address_of(domain, &e->to, &to);
	if (!m.msg_namelen || !address_of(domain, &e->from, &from))
		return -EAFNOSUPPORT;
	m.msg_controllen = put_source(domain, &from, (void *)control);
	do
		r = RAW3(SYS_sendmsg, fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (r == -EINTR);
	return r < 0 ? (int)r : 0;
}

static int put_again(const struct socket_message *m)
{
	const struct ends *e = ends_of(m);
	int fd, r;

	if (!e)
		return -EBADMSG;
	if (!is_here(&e->to)) /* this machine has not that address: somebody else may */
		return -EADDRNOTAVAIL;
	fd = m->sender_pid ? fdpass_take((int)m->sender_pid, m->sender_fd) : -EBADF;
	if (fd < 0)
		fd = stand_in(&e->from);
	if (fd < 0)
		return fd;
	r = send_again(fd, e, (const char *)(m + 1) + sizeof(*e), m->length);
	raw_close(fd);
	return r;
}

void socket_udp_refill(const struct fermata_desc *d, const struct socket_record *r, const char *content)
{
	const struct socket_message *m;
	unsigned int lost = 0;
	int err = 0;

	for (size_t at = 0; (m = socket_message_next(content, r->content_length, &at));) {
		int failed = put_again(m);

		lost += failed != 0;
		err = failed ? failed : err;
	}
	if (lost)
		log_warn("fd %d, a UDP socket: %u datagrams that had not been read are lost (errno %d)", d->fd, lost, -err);
}
