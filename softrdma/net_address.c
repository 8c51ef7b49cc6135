/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of hosts on the network, IPv4 ones mapped into IPv6: doc/softrdma-protocol.md says what follows from what. No state.
 *
 * Interfaces are asked for by ioctl(2) and in /proc/net/if_inet6: getifaddrs allocates.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "softrdma/net.h"

#define INTERFACES 64

/* ---- the own address: IPv4 ---- */

static uint32_t address_of(const struct sockaddr *sa)
{
	struct sockaddr_in in;

	memcpy(&in, sa, sizeof(in));
	return ntohl(in.sin_addr.s_addr);
}

/* a.b.c.d, and nothing else; 0: it is none. */
static uint32_t parse(const char *s)
{
	uint32_t address = 0, part, i;

	for (i = 0; i < 4; i++, s++) {
		if (*s < '0' || *s > '9')
			return 0;
		for (part = 0; *s >= '0' && *s <= '9' && part < 256; s++)
			part = part * 10 + (uint32_t)(*s - '0');
		if (part > 255 || *s != (i < 3 ? '.' : 0))
			return 0;
		address = address << 8 | part;
	}
	return address;
}

static int wanted(int fd, const struct ifreq *r, const char *want)
{
	struct ifreq flags = *r;

	if (ioctl(fd, SIOCGIFFLAGS, &flags))
		return 0;
	if (want && parse(want))
		return address_of(&r->ifr_addr) == parse(want);
	if (want)
		return !strcmp(r->ifr_name, want);
	return (flags.ifr_flags & IFF_UP) && !(flags.ifr_flags & IFF_LOOPBACK);
}

static int interfaces_ask(int fd, const char *want, struct sr_host *h)
{
	struct ifreq list[INTERFACES];
	struct ifconf conf = { .ifc_len = sizeof(list), .ifc_req = list };
	size_t i;

	if (ioctl(fd, SIOCGIFCONF, &conf))
		return -errno;
	for (i = 0; i < (size_t)conf.ifc_len / sizeof(*list); i++) {
		if (list[i].ifr_addr.sa_family != AF_INET || !wanted(fd, &list[i], want))
			continue;
		h->address = address_of(&list[i].ifr_addr);
		if (!ioctl(fd, SIOCGIFNETMASK, &list[i]))
			h->mask = address_of(&list[i].ifr_netmask);
		return 0;
	}
	return -ENOENT;
}

/* ---- IPv6: a line of /proc/net/if_inet6 is ADDRESS INTERFACE PREFIX SCOPE FLAGS NAME, all but the last in hexadecimal ---- */

static uint32_t hex(const char **s, int digits)
{
	uint32_t v = 0;

	for (; digits; digits--, (*s)++) {
		uint32_t c = (uint8_t)**s;

		if (c - '0' > 9 && (c | 32) - 'a' > 5)
			break;
		v = v << 4 | (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	return v;
}

struct line6 {
	uint8_t ip[16];
	uint32_t interface, prefix, scope, flags;
	const char *name;
	size_t length;
};

/* What comes behind the line; NULL: it is none. */
static const char *line_read(const char *s, struct line6 *l)
{
	uint32_t i;

	for (i = 0; i < 16; i++)
		l->ip[i] = (uint8_t)hex(&s, 2);
	for (i = 0; i < 4; i++) {
		uint32_t v;

		if (*s++ != ' ')
			return NULL;
		v = hex(&s, 8);
		l->interface = i == 0 ? v : l->interface;
		l->prefix = i == 1 ? v : l->prefix;
		l->scope = i == 2 ? v : l->scope;
		l->flags = i == 3 ? v : l->flags;
	}
	while (*s == ' ')
		s++;
	l->name = s;
	l->length = strcspn(s, "\n");
	return s[l->length] ? s + l->length + 1 : NULL;
}

#define SCOPE_GLOBAL 0u
#define FLAGS_UNFIT 0x68u /* deprecated, tentative, a duplicate */

static int wanted6(const struct line6 *l, const char *want)
{
	struct in6_addr a;

	if (want && inet_pton(AF_INET6, want, &a) == 1)
		return !memcmp(l->ip, &a, sizeof(a));
	if (l->scope != SCOPE_GLOBAL || (l->flags & FLAGS_UNFIT))
		return 0;
	return want ? strlen(want) == l->length && !memcmp(want, l->name, l->length) : !!l->ip[0]; /* ::1 */
}

static int interfaces6_ask(const char *want, struct sr_host *h)
{
	char text[8192];
	int fd = open("/proc/net/if_inet6", O_RDONLY | O_CLOEXEC);
	long n = fd >= 0 ? raw_pread(fd, text, sizeof(text) - 1, 0) : -1;
	const char *s = text;
	struct line6 l = { 0 };
	uint32_t end;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	while (s && *s) {
		s = line_read(s, &l);
		if (!s || !wanted6(&l, want))
			continue;
		memcpy(h->prefix, l.ip, sizeof(h->prefix));
		memcpy(&end, l.ip + sizeof(h->prefix), sizeof(end));
		h->address = ntohl(end);
		h->interface = l.interface;
		h->mask = l.prefix > 96 ? ~0u << (128 - (l.prefix < 128 ? l.prefix : 127)) : 0;
		return h->address ? 0 : -ENOENT;
	}
	return -ENOENT;
}

int net_address_find(struct sr_host *h)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const char *want = getenv("SOFTRDMA_ADDRESS");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = -ENOENT;

	if (want && !*want)
		want = NULL;
	h->mask = h->interface = 0;
	memcpy(h->prefix, mapped, sizeof(mapped));
	if (fd >= 0) {
		err = interfaces_ask(fd, want, h);
		close(fd);
	}
	if (err && want && parse(want)) { /* one of the loopback's many, say */
		h->address = parse(want);
		err = 0;
	}
	return err ? interfaces6_ask(want, h) : 0;
}

/* ---- other hosts ---- */

void net_name_fill(const struct sr_host *h, uint32_t address, uint8_t ret[16])
{
	const uint32_t be = htonl(address);

	memcpy(ret, h->prefix, sizeof(h->prefix));
	memcpy(ret + sizeof(h->prefix), &be, sizeof(be));
}

socklen_t net_sockaddr_fill(const uint8_t name[16], uint32_t port, union net_sockaddr *ret)
{
	struct in6_addr a;

	memcpy(&a, name, sizeof(a));
	memset(ret, 0, sizeof(*ret));
	if (IN6_IS_ADDR_V4MAPPED(&a)) {
		ret->in.sin_family = AF_INET;
		ret->in.sin_port = htons((uint16_t)port);
		memcpy(&ret->in.sin_addr, name + 12, 4);
		return sizeof(ret->in);
	}
	ret->in6.sin6_family = AF_INET6;
	ret->in6.sin6_port = htons((uint16_t)port);
	ret->in6.sin6_addr = a;
	return sizeof(ret->in6);
}

void net_name_show(const uint8_t name[16], uint32_t port, char *buf, size_t size)
{
	char text[INET6_ADDRSTRLEN] = "";
	struct in6_addr a;
	int mapped;

	memcpy(&a, name, sizeof(a));
	mapped = IN6_IS_ADDR_V4MAPPED(&a);
	if (mapped)
		inet_ntop(AF_INET, name + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, name, text, sizeof(text));
	if (port)
		fm_format(buf, size, mapped ? "%s:%u" : "[%s]:%u", text, port);
	else
		fm_format(buf, size, "%s", text);
}
