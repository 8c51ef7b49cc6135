/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options of a socket that a program may have set and would miss. Each is recorded as it reads, whether set or not, and
 * set again where it differs from what the new socket has. Buffer sizes are kept only where the program has set them
 * (SO_BUF_LOCK, kernel 5.14): others are the kernel's to tune. SO_REUSEADDR is socket.c's matter.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "plugins/socket/socket.h"

enum { ANY, INET, INET6, TCP, UNIX }; /* which sockets have it */

static const struct option_kind {
	int level, name, length;
	uint8_t family;
	uint8_t early; /* matters before bind */
	uint8_t locked; /* only if this bit of SO_BUF_LOCK is set; reads twice what was set */
} kinds[] = {
	{ SOL_SOCKET, SO_REUSEPORT, 4, INET, 1, 0 },
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
	{ IPPROTO_IPV6, IPV6_V6ONLY, 4, INET6, 1, 0 },
	{ IPPROTO_IP, IP_TOS, 4, INET, 0, 0 },
	{ IPPROTO_TCP, TCP_NODELAY, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_CORK, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPINTVL, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_KEEPCNT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 4, TCP, 0, 0 },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, 4, TCP, 0, 0 },
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
	default:
		return true;
	}
}

int socket_options_dump(int fd, const struct socket_record *r, struct socket_option *options, uint32_t room)
{
	int lock = socket_get_int(fd, SOL_SOCKET, SO_BUF_LOCK);
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && n < room; i++) {
		const struct option_kind *k = &kinds[i];
		struct socket_option *o = &options[n];

		if (!applies(k, r) || (k->locked && (lock < 0 || !(lock & k->locked))))
			continue;
		*o = (struct socket_option){ .level = k->level, .name = k->name, .length = (uint32_t)k->length };
		if (socket_get(fd, k->level, k->name, o->value, o->length) != k->length)
			continue;
		if (k->locked) {
			int size;

			memcpy(&size, o->value, sizeof(size));
			size /= 2; /* the kernel keeps twice what was asked for */
			memcpy(o->value, &size, sizeof(size));
		}
		n++;
	}
	return (int)n;
}

static const struct option_kind *kind_of(const struct socket_option *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].level == o->level && kinds[i].name == o->name)
			return &kinds[i];
	return NULL;
}

int socket_options_restore(int fd, const struct socket_option *o, uint32_t count, bool early)
{
	for (uint32_t i = 0; i < count; i++, o++) {
		const struct option_kind *k = kind_of(o);
		uint8_t now[sizeof(o->value)];
		int r;

		if (!k || o->length > sizeof(now) || k->early != early)
			continue;
		if (!k->locked && socket_get(fd, o->level, o->name, now, o->length) == (int)o->length &&
		    !memcmp(now, o->value, o->length))
			continue;
		r = socket_set(fd, o->level, o->name, o->value, o->length);
		if (r < 0)
			return fermata_fail(r, "option %d of level %d cannot be set again (errno %d)", o->name, o->level, -r);
	}
	return 0;
}
