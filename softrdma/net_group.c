/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups between hosts. A message to a group goes out once, as a datagram of UDP to a group of IP, to which every context joins that has members
 * of it; who gets it hands it to its own context's members. As on RoCE v2, so the network's own machinery knows who is where, and
 * nobody keeps a list of hosts: not who sends, who would have to find them, and not a daemon. A host that leaves or dies is not sent to
 * any more by that alone. The other ways were to send along the connections that a context has, which misses hosts that
 * it does not speak to yet, and a list of hosts by hand, which is wrong as soon as one comes.
 *
 *   a group's GID -- hash --> one of 16 groups of IP, v4 or v6 (a socket may join 20): what comes for another GID is dropped by its header
 *
 * Messages are sealed with a key that follows from the network's: other users can join the same groups of IP, but neither read nor
 * write in them. Members on the sender's host have got theirs through shared memory, so what comes from the own host is dropped. As of
 * all unreliable datagrams some are lost.
 *
 * Sent by the hand of who posts, with its queue's sq_lock held; taken by the context's thread. Memberships are under ctx->lock, the socket's making under
 * net->lock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium/crypto_aead_xchacha20poly1305.h>
#include <sodium/crypto_auth_hmacsha512256.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

static const uint8_t first_group4[16] = { [10] = 0xff, [11] = 0xff, 239, 255, 83, 64 };
static const uint8_t first_group6[16] = { 0xff, 0x12, [10] = 's', 'f', 'o', 's', 0x53, 0x40 }; /* ff12::7366:6f73:5340, of the link */
#define LOST_NS NET_SECOND
#define LOOK_NS (10 * NET_MS)
#define TURN 32 /* messages, before the thread looks at other things */
#define DGID 24 /* in the header */
#define TAG crypto_aead_xchacha20poly1305_ietf_ABYTES
#define SEALED_MAX (sizeof(struct net_frame) + NET_DATAGRAM_MAX)

static uint32_t own_address(const struct sr_net *net)
{
	uint32_t be;

	memcpy(&be, net->gid + 12, sizeof(be));
	return be;
}

static int is_ipv4(const struct sr_net *net)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)net->gid);
}

static uint32_t bucket_of(const uint8_t gid[16])
{
	uint32_t h = 0x811c9dc5u, i;

	for (i = 0; i < 16; i++)
		h = (h ^ gid[i]) * 0x01000193u;
	return (h ^ h >> 16) % NET_GROUPS;
}

static void key_make(struct sr_net *net)
{
	static const unsigned char what[] = "softrdma multicast";
	crypto_auth_hmacsha512256_state state;

	_Static_assert(sizeof(net->group_key) == crypto_aead_xchacha20poly1305_ietf_KEYBYTES &&
		       sizeof(net->group_key) == crypto_auth_hmacsha512256_BYTES, "one is the other");
	_Static_assert(NET_GROUP_NONCE == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES && NET_GROUP_TAG == TAG, "wire format");
	crypto_auth_hmacsha512256_init(&state, net->key, net->key_length);
	crypto_auth_hmacsha512256_update(&state, what, sizeof(what) - 1);
	crypto_auth_hmacsha512256_final(&state, net->group_key);
}

/* The group of IP, for a GID. */
static socklen_t group_address(const struct sr_net *net, const uint8_t gid[16], union net_sockaddr *ret)
{
	uint8_t name[16];
	socklen_t len;

	memcpy(name, is_ipv4(net) ? first_group4 : first_group6, sizeof(name));
	name[15] = (uint8_t)(name[15] + bucket_of(gid));
	len = net_sockaddr_fill(name, NET_PORT, ret);
	if (!is_ipv4(net))
		ret->in6.sin6_scope_id = net->interface;
	return len;
}

static long options4(struct sr_net *net, int fd)
{
	struct in_addr own = { .s_addr = own_address(net) };
	int none = 0;

	RAW5(SYS_setsockopt, fd, IPPROTO_IP, IP_MULTICAST_ALL, &none, sizeof(none));
	/* Hosts that share the loopback hear each other by it alone. */
	if (ntohl(own.s_addr) >> 24 != IN_LOOPBACKNET)
		RAW5(SYS_setsockopt, fd, IPPROTO_IP, IP_MULTICAST_LOOP, &none, sizeof(none));
	return RAW5(SYS_setsockopt, fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof(own));
}

static long options6(struct sr_net *net, int fd)
{
	int one = 1, none = 0;

	RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)); /* IPv4's contexts have that port, too */
	RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &none, sizeof(none));
	RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &none, sizeof(none));
	return RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &net->interface, sizeof(net->interface));
}

static int socket_make(struct sr_net *net)
{
	const uint8_t any[16] = { [10] = is_ipv4(net) ? 0xff : 0, [11] = is_ipv4(net) ? 0xff : 0 };
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = NET_TAG_GROUPS };
	union net_sockaddr sa;
	socklen_t len = net_sockaddr_fill(any, NET_PORT, &sa);
	int fd = sr_socket(sa.sa.sa_family, SOCK_DGRAM), one = 1;
	long err;

	if (fd < 0)
		return fd;
	RAW5(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	err = is_ipv4(net) ? options4(net, fd) : options6(net, fd);
	if (!err)
		err = RAW3(SYS_bind, fd, &sa, len);
	if (!err)
		err = RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, fd, &ev);
	if (!err)
		return fd;
	close(fd);
	return (int)err;
}

/* -errno; it is tried once. */
static int group_socket(struct sr_net *net)
{
	int fd;

	lock_acquire(&net->lock);
	if (net->group_fd == -1) {
		key_make(net);
		net->group_fd = socket_make(net);
		if (net->group_fd < 0)
			log_error("no multicast between hosts (error %d)", -net->group_fd);
		if (net->group_fd < 0)
			net->group_fd = -ENOTCONN; /* not -1: not again */
	}
	fd = net->group_fd;
	lock_release(&net->lock);
	return fd;
}

static void membership(struct sr_net *net, const uint8_t gid[16], int join)
{
	union net_sockaddr group;
	struct ip_mreq m4 = { .imr_interface.s_addr = own_address(net) };
	struct ipv6_mreq m6 = { .ipv6mr_interface = net->interface };
	long err;

	group_address(net, gid, &group);
	m4.imr_multiaddr = group.in.sin_addr;
	m6.ipv6mr_multiaddr = group.in6.sin6_addr;
	if (is_ipv4(net))
		err = RAW5(SYS_setsockopt, net->group_fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m4, sizeof(m4));
	else
		err = RAW5(SYS_setsockopt, net->group_fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &m6, sizeof(m6));
	if (err && join)
		log_error("a multicast group is not reached from other hosts (error %ld)", -err);
}

void sr_net_group_join(struct sr_context *ctx, const uint8_t gid[16])
{
	struct sr_net *net = ctx->net;

	if (net && group_socket(net) >= 0 && !net->group_users[bucket_of(gid)]++)
		membership(net, gid, 1);
}

void sr_net_group_leave(struct sr_context *ctx, const uint8_t gid[16])
{
	struct sr_net *net = ctx->net;

	if (net && net->group_fd >= 0 && !--net->group_users[bucket_of(gid)])
		membership(net, gid, 0);
}

/* ---- out ---- */

static void send_out(const struct sr_net *net, const uint8_t gid[16], const void *bytes, size_t n)
{
	union net_sockaddr to;
	socklen_t len = group_address(net, gid, &to);
	uint64_t end = net_now() + LOST_NS;
	struct timespec look = { .tv_nsec = LOOK_NS };
	struct pollfd p = { .fd = net->group_fd, .events = POLLOUT };

	while (RAW6(SYS_sendto, net->group_fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT, &to, len) == -EAGAIN && net_now() < end)
		RAW5(SYS_ppoll, &p, 1, &look, NULL, 0);
}

int sr_net_group_send(struct sr_run *r, struct op *o, const struct sr_sender *from, const uint8_t gid[16])
{
	struct sr_net *net = r->ctx->net;
	uint32_t length = (uint32_t)o->w->length + SR_GRH;
	struct net_group h = { .magic = NET_GROUP_MAGIC, .version = NET_VERSION, .length = sizeof(h), .host = own_address(net) };
	struct net_frame f = { .type = NET_DATAGRAM, .opcode = (uint8_t)o->w->opcode, .to = 0xffffff, .from = from->qpn,
			       .rkey = o->w->rkey, .imm = o->w->imm, .length = length, .site = from->site, .pkey = from->pkey,
			       .target = (uint32_t)from->slid | (uint32_t)from->sl << 16 };
	char plain[SEALED_MAX], sealed[sizeof(h) + SEALED_MAX + TAG];
	struct iovec to = { plain + sizeof(f), length };
	struct pieces p = o->local; /* moving uses them up */

	if (group_socket(net) < 0 || length > NET_DATAGRAM_MAX || RAW3(SYS_getrandom, h.nonce, sizeof(h.nonce), 0) != sizeof(h.nonce))
		return 0;
	f.flags = (uint8_t)((o->w->flags & IBV_SEND_SOLICITED ? NET_SOLICITED : 0) | (from->routed ? NET_ROUTED : 0) |
			    (o->w->opcode == IBV_WR_SEND_WITH_IMM ? NET_IMMEDIATE : 0));
	memcpy(plain, &f, sizeof(f));
	if (sr_copy(r->ctx, &net->here, &to, &r->ctx->self, p.v, length))
		return -EFAULT;
	memcpy(sealed, &h, sizeof(h));
	crypto_aead_xchacha20poly1305_ietf_encrypt((unsigned char *)sealed + sizeof(h), NULL, (unsigned char *)plain, sizeof(f) + length,
						   (unsigned char *)&h, sizeof(h), NULL, h.nonce, net->group_key);
	send_out(net, gid, sealed, sizeof(h) + sizeof(f) + length + TAG);
	return 0;
}

/* ---- in ---- */

static void members_deliver(struct sr_net *net, const struct net_frame *f, char *payload)
{
	struct sr_context *ctx = net->ctx;
	const struct sr_sender from = { .qpn = f->from, .slid = (uint16_t)f->target, .sl = (uint8_t)(f->target >> 16 & 15),
					.site = f->site, .pkey = f->pkey, .routed = !!(f->flags & NET_ROUTED) };
	struct sr_run r = { .ctx = ctx, .src = &ctx->self, .dst = &ctx->self };
	struct sr_wqe w = { .opcode = f->flags & NET_IMMEDIATE ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm = f->imm,
			    .length = f->length - SR_GRH, .rkey = f->rkey, .flags = f->flags & NET_SOLICITED ? IBV_SEND_SOLICITED : 0 };
	struct op o = { .w = &w, .from = &net->here };
	uint32_t i, number, n = atomic_load(&ctx->seg->members);

	for (i = 0; i < n; i++) {
		struct sr_member *m = &ctx->seg->member[i];

		number = atomic_load_explicit(&m->number, memory_order_acquire);
		if (!number || memcmp(m->gid, payload + DGID, sizeof(m->gid)))
			continue;
		o.local.v[0] = (struct iovec){ payload, f->length };
		o.local.n = 1;
		sr_ud_deliver(&r, &o, &from, &ctx->self, ctx->seg->index << SR_QP_BITS | (number - 1));
	}
}

static void message_take(struct sr_net *net, const char *bytes, size_t n)
{
	char plain[SEALED_MAX];
	unsigned long long length;
	struct net_group h;
	struct net_frame f;

	if (net_group_decode(bytes, n, &h) || h.host == own_address(net))
		return;
	if (crypto_aead_xchacha20poly1305_ietf_decrypt((unsigned char *)plain, &length, NULL, (const unsigned char *)bytes + sizeof(h),
						       n - sizeof(h), (unsigned char *)&h, sizeof(h), h.nonce, net->group_key))
		return;
	if (!net_frame_decode(plain, length, &f) && f.type == NET_DATAGRAM && f.length == length - sizeof(f))
		members_deliver(net, &f, plain + sizeof(f));
}

void net_groups_read(struct sr_net *net)
{
	char bytes[sizeof(struct net_group) + SEALED_MAX + TAG + 1];
	int i;

	for (i = 0; i < TURN; i++) {
		long n = RAW6(SYS_recvfrom, net->group_fd, bytes, sizeof(bytes), MSG_DONTWAIT, 0, 0);

		if (n < 0)
			return;
		message_take(net, bytes, (size_t)n);
	}
}
