/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What only the kernel's socket diagnostics (NETLINK_SOCK_DIAG, sock_diag(7)) tell: which socket a unix socket is connected to, how far
 * it is shut down, how long a listener's queue is; whether a TCP peer is held by anybody on this host, and in which state it is; whom one that is being connected has asked. Needs no privilege.
 * Owns nothing: a netlink socket a question.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"
#include "plugins/socket/socket_tcp.h"

#define ANSWER_SIZE 2048
#define PART_SIZE 16384 /* the kernel makes them smaller */

/* Sends @request and receives its one answer: the bytes of it, or -errno (-ENOENT: no such socket). */
static long question(const void *request, size_t len, void *answer)
{
	int fd = (int)RAW3(SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	const struct nlmsghdr *head = answer;
	long n;

	if (fd < 0)
		return fd;
	n = RAW6(SYS_sendto, fd, request, len, 0, 0, 0);
	while (n >= 0 || n == -EINTR) {
		n = RAW6(SYS_recvfrom, fd, answer, ANSWER_SIZE, 0, 0, 0);
		if (n != -EINTR)
			break;
	}
	raw_close(fd);
	if (n < 0)
		return n;
	if ((size_t)n < sizeof(*head) || head->nlmsg_len > (size_t)n)
		return -EPROTO;
	if (head->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *e = NLMSG_DATA(head);

		return e->error ? e->error : -EPROTO;
	}
	return head->nlmsg_len;
}

int socket_diag_unix(uint32_t ino, struct socket_unix_info *ret)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req req;
	} request = {
		.head = { sizeof(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0 },
		.req = { .sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_ino = ino, .udiag_cookie = { ~0u, ~0u },
			 .udiag_show = UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN },
	};
	char answer[ANSWER_SIZE] __attribute__((aligned(8)));
	long n = question(&request, sizeof(request), answer);
	struct socket_unix_info info = { .ino = ino };
	const struct rtattr *a;

	if (n < 0)
		return (int)n;
	n -= (long)NLMSG_SPACE(sizeof(struct unix_diag_msg));
	a = (const void *)(answer + NLMSG_SPACE(sizeof(struct unix_diag_msg)));
	for (; n > 0 && RTA_OK(a, n); a = RTA_NEXT(a, n)) {
		const void *data = RTA_DATA(a);

		if (a->rta_type == UNIX_DIAG_PEER) {
			memcpy(&info.peer_ino, data, sizeof(info.peer_ino));
			info.has_peer = true;
		} else if (a->rta_type == UNIX_DIAG_VFS) {
			info.path_ino = ((const struct unix_diag_vfs *)data)->udiag_vfs_ino;
		} else if (a->rta_type == UNIX_DIAG_SHUTDOWN) {
			info.shutdown = *(const uint8_t *)data;
		} else if (a->rta_type == UNIX_DIAG_RQLEN) {
			const struct unix_diag_rqlen *q = data;

			info.pending = q->udiag_rqueue;
			info.backlog = q->udiag_wqueue;
		}
	}
	*ret = info;
	return 0;
}

static void fill_id(struct inet_diag_sockid *id, const struct socket_name *local, const struct socket_name *remote)
{
	struct sockaddr_in6 l6, r6;
	struct sockaddr_in l, r;

	memcpy(&l, local->bytes, sizeof(l));
	memcpy(&r, remote->bytes, sizeof(r));
	id->idiag_sport = l.sin_port; /* the ports of both families lie at the same place */
	id->idiag_dport = r.sin_port;
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	if (l.sin_family == AF_INET) {
		memcpy(id->idiag_src, &l.sin_addr, 4);
		memcpy(id->idiag_dst, &r.sin_addr, 4);
		return;
	}
	memcpy(&l6, local->bytes, sizeof(l6));
	memcpy(&r6, remote->bytes, sizeof(r6));
	memcpy(id->idiag_src, &l6.sin6_addr, 16);
	memcpy(id->idiag_dst, &r6.sin6_addr, 16);
}

static void name_of(const struct inet_diag_msg *m, struct socket_name *ret)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = m->id.idiag_dport };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = m->id.idiag_dport };

	memcpy(&a4.sin_addr, m->id.idiag_dst, 4);
	memcpy(&a6.sin6_addr, m->id.idiag_dst, 16);
	if (a6.sin6_addr.s6_addr[0] == 0xfe && (a6.sin6_addr.s6_addr[1] & 0xc0) == 0x80) /* of a link */
		a6.sin6_scope_id = m->id.idiag_if;
	memset(ret, 0, sizeof(*ret));
	ret->length = m->idiag_family == AF_INET ? sizeof(a4) : sizeof(a6);
	memcpy(ret->bytes, m->idiag_family == AF_INET ? (void *)&a4 : (void *)&a6, ret->length);
}

/* In one part of an answer. 1: found; 0: not, there is more; or -errno. */
static int find_inode(const char *answer, long n, uint64_t ino, struct socket_name *ret)
{
	const struct nlmsghdr *h = (const void *)answer;

	for (; n > 0 && NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
		const struct inet_diag_msg *m = NLMSG_DATA(h);

		if (h->nlmsg_type == NLMSG_DONE)
			return -ENOENT;
		if (h->nlmsg_type == NLMSG_ERROR)
			return -EPROTO;
		if (m->idiag_inode != (uint32_t)ino)
			continue;
		name_of(m, ret);
		return 1;
	}
	return 0;
}

int socket_diag_connecting(int domain, uint64_t ino, struct socket_name *ret)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} request = {
		.head = { sizeof(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 },
		.req = { .sdiag_family = (uint8_t)domain, .sdiag_protocol = IPPROTO_TCP, .idiag_states = STATE(TCP_SYN_SENT) },
	};
	char answer[PART_SIZE] __attribute__((aligned(8)));
	int fd = (int)RAW3(SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), r;
	long n;

	if (fd < 0)
		return fd;
	n = RAW6(SYS_sendto, fd, &request, sizeof(request), 0, 0, 0);
	for (r = n < 0 ? (int)n : 0; !r; r = find_inode(answer, n, ino, ret)) {
		do
			n = RAW6(SYS_recvfrom, fd, answer, sizeof(answer), 0, 0, 0);
		while (n == -EINTR);
		if (n <= 0) {
			r = n ? (int)n : -EPROTO;
			break;
		}
	}
	raw_close(fd);
	return r > 0 ? 0 : r;
}

int socket_diag_tcp(const struct socket_name *local, const struct socket_name *remote, struct socket_tcp_seen *ret)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} request = {
		.head = { sizeof(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0 },
		.req = { .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u },
	};
	char answer[ANSWER_SIZE] __attribute__((aligned(8)));
	const struct inet_diag_msg *m = (const void *)(answer + NLMSG_HDRLEN);
	uint16_t family;
	long n;

	memcpy(&family, local->bytes, sizeof(family));
	request.req.sdiag_family = (uint8_t)family;
	fill_id(&request.req.id, local, remote);
	n = question(&request, sizeof(request), answer);
	if (n < 0)
		return (int)n;
	if ((size_t)n < NLMSG_SPACE(sizeof(*m)) || m->idiag_state == TCP_LISTEN) /* only the listener is there */
		return -ENOENT;
	*ret = (struct socket_tcp_seen){ m->idiag_inode, m->idiag_state };
	return 0;
}
