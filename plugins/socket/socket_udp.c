/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP sockets: address, peer, options and multicast groups. No state of its own. What has not been read: socket_udp_queue.c.
 *
 * Groups. The kernel lists those of an interface (/proc/net/igmp, igmp6), not those of a socket, but answers for a socket and one group
 * (MCAST_MSFILTER). So every group of the host is asked about.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define LIST_SIZE 16384 /* at first */

int socket_udp_claim(struct socket_state *s)
{
	struct socket_record *r = &s->record;

	r->kind = socket_name_get(r->maker_fd, true, &r->remote) < 0 ? SOCKET_FRESH : SOCKET_NAMED;
	return socket_udp_publish(r);
}

void socket_udp_connect(int fd, int number, const struct socket_record *r)
{
	int err = socket_connect(fd, &r->remote);
	char text[120];

	socket_name_text(&r->remote, text, sizeof(text));
	if (err)
		log_warn("fd %d, a UDP socket, is not connected with %s any more (errno %d)", number, text, -err);
}

/* Whether @fd is in @group at interface @index: 1, 0, or -errno after it has said why that cannot be kept. */
static int is_member(int fd, uint32_t index, const void *group, size_t len)
{
	struct group_filter f = { .gf_interface = index, .gf_numsrc = 1 };
	bool inet = len == sizeof(struct sockaddr_in);
	int r;

	memcpy(&f.gf_group, group, len);
	r = socket_get(fd, inet ? IPPROTO_IP : IPPROTO_IPV6, MCAST_MSFILTER, &f, sizeof(f));
	if (r < 0)
		return 0;
	if (f.gf_fmode != MCAST_EXCLUDE || f.gf_numsrc)
		return fermata_fail(-EOPNOTSUPP, "fd %d is in a multicast group of chosen sources, which is not supported yet: leave the group before "
				    "the checkpoint", fd);
	return 1;
}

struct groups {
	int fd;
	struct socket_option *options;
	uint32_t room, count;
};

static int note(struct groups *g, int level, int name, const void *value, size_t len)
{
	struct socket_option *o = &g->options[g->count];

	if (g->count == g->room)
		return fermata_fail(-EOPNOTSUPP, "fd %d is in more than %u multicast groups, which is not supported", g->fd, g->room);
	*o = (struct socket_option){ .level = level, .name = name, .length = (uint32_t)len };
	memcpy(o->value, value, len);
	g->count++;
	return 0;
}

static unsigned int digit(char c)
{
	return c >= '0' && c <= '9' ? (unsigned int)(c - '0') : c >= 'A' && c <= 'F' ? (unsigned int)(c - 'A' + 10) :
	       c >= 'a' && c <= 'f' ? (unsigned int)(c - 'a' + 10) : 16;
}

static uint32_t number(const char **at, unsigned int base)
{
	uint32_t v = 0;

	for (; digit(**at) < base; ++*at)
		v = v * base + digit(**at);
	return v;
}

/* "INDEX  DEVICE ..", then a line for each of its groups: "    E00000FB  ..", the address as the machine reads it. */
static int add_inet(struct groups *g, const char *line, uint32_t *index)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct ip_mreqn m = { 0 };
	int r;

	if (digit(*line) < 10) {
		*index = number(&line, 10);
		return 0;
	}
	line += strspn(line, " \t");
	if (digit(*line) > 15)
		return 0;
	a.sin_addr.s_addr = number(&line, 16);
	r = is_member(g->fd, *index, &a, sizeof(a));
	m.imr_multiaddr = a.sin_addr;
	m.imr_ifindex = (int)*index;
	return r > 0 ? note(g, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) : r;
}

/* "INDEX  DEVICE  32 digits  .." */
static int add_inet6(struct groups *g, const char *line)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	struct ipv6_mreq m = { 0 };
	int r;

	m.ipv6mr_interface = number(&line, 10);
	line += strspn(line, " ");
	line += strcspn(line, " ");
	line += strspn(line, " ");
	for (int i = 0; i < 32; i++, line++) {
		if (digit(*line) > 15)
			return 0;
		a.sin6_addr.s6_addr[i / 2] = (uint8_t)(a.sin6_addr.s6_addr[i / 2] << 4 | digit(*line));
	}
	m.ipv6mr_multiaddr = a.sin6_addr;
	r = is_member(g->fd, m.ipv6mr_interface, &a, sizeof(a));
	return r > 0 ? note(g, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m, sizeof(m)) : r;
}

/* The whole of a list in /proc, the caller's to free; or NULL and -errno. */
static char *read_list(const char *path, int *ret_err)
{
	for (size_t size = LIST_SIZE;; size *= 2) {
		char *text = fermata_alloc(size);
		long n = text ? raw_read_file(path, text, size) : -ENOMEM;

		*ret_err = n < 0 ? (int)n : 0;
		if (n >= 0)
			return text;
		fermata_free(text);
		if (n != -EFBIG)
			return NULL;
	}
}

static int add_list(struct groups *g, bool six)
{
	uint32_t index = 0;
	char *text, *next;
	int r;

	text = read_list(six ? "/proc/thread-self/net/igmp6" : "/proc/thread-self/net/igmp", &r);
	if (!text)
		return r == -ENOMEM ? r : 0; /* there is none where that family is not */
	for (char *line = text; *line && !r; line = next) {
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		r = six ? add_inet6(g, line) : add_inet(g, line, &index);
	}
	fermata_free(text);
	return r;
}

int socket_udp_groups(int fd, const struct socket_record *rec, struct socket_option *options, uint32_t room)
{
	struct groups g = { fd, options, room, 0 };
	int r = add_list(&g, false);

	if (!r && rec->domain == AF_INET6)
		r = add_list(&g, true);
	return r ? r : (int)g.count;
}
