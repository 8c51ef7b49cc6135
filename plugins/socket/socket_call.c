/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket calls without libc state, and names as text. Owns nothing. */
#include <errno.h>
#include <linux/un.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

int socket_get(int fd, int level, int name, void *value, size_t len)
{
	socklen_t n = (socklen_t)len;
	int r = (int)RAW5(SYS_getsockopt, fd, level, name, value, &n);

	return r < 0 ? r : (int)n;
}

int socket_get_int(int fd, int level, int name)
{
	int value = 0, r = socket_get(fd, level, name, &value, sizeof(value));

	return r < 0 ? r : value;
}

int socket_set(int fd, int level, int name, const void *value, size_t len)
{
	return (int)RAW5(SYS_setsockopt, fd, level, name, value, len);
}

int socket_set_int(int fd, int level, int name, int value)
{
	return socket_set(fd, level, name, &value, sizeof(value));
}

int socket_name_get(int fd, bool remote, struct socket_name *ret)
{
	struct socket_name n = { .length = sizeof(n.bytes) };
	int r = (int)RAW3(remote ? SYS_getpeername : SYS_getsockname, fd, n.bytes, &n.length);

	if (!r)
		*ret = n;
	return r;
}

int socket_bind(int fd, const struct socket_name *n)
{
	return (int)RAW3(SYS_bind, fd, n->bytes, n->length);
}

int socket_connect(int fd, const struct socket_name *n)
{
	return (int)RAW3(SYS_connect, fd, n->bytes, n->length);
}

int socket_poll(int fd, int events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = (short)events };
	long r = RAW3(SYS_poll, &p, 1, timeout_ms);

	return r > 0 ? p.revents : (int)r;
}

long socket_receive(int fd, void *buf, size_t n, int flags)
{
	long r;

	do
		r = RAW6(SYS_recvfrom, fd, buf, n, flags | MSG_DONTWAIT, 0, 0);
	while (r == -EINTR);
	return r;
}

void socket_pause(void)
{
	const struct timespec step = { 0, 2000000 };

	RAW2(SYS_nanosleep, &step, NULL);
}

bool socket_is_inode(int fd, uint64_t ino)
{
	struct stat st;

	return RAW2(SYS_fstat, fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == ino;
}

void socket_reset(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct socket_name peer;

	if (socket_name_get(fd, true, &peer) == 0) /* else somebody has done it */
		RAW3(SYS_connect, fd, &none, sizeof(none));
}

int socket_queued(int fd, unsigned long request)
{
	int n = 0, r = raw_ioctl(fd, request, &n);

	return r < 0 ? r : n;
}

static void inet6_text(const struct sockaddr_in6 *a, char *buf, size_t size)
{
	const uint8_t *b = a->sin6_addr.s6_addr;
	size_t at = fm_format(buf, size, "[");

	for (int i = 0; i < 16 && at < size; i += 2)
		at += fm_format(buf + at, size - at, i ? ":%x" : "%x", b[i] << 8 | b[i + 1]);
	if (at < size)
		fm_format(buf + at, size - at, "]:%u", (unsigned int)ntohs(a->sin6_port));
}

void socket_name_text(const struct socket_name *n, char *buf, size_t size)
{
	union {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		uint8_t bytes[sizeof(n->bytes) + 1];
	} a = { 0 };

	memcpy(a.bytes, n->bytes, n->length < sizeof(n->bytes) ? n->length : sizeof(n->bytes));
	if (n->length >= sizeof(a.in) && a.in.sin_family == AF_INET) {
		const uint8_t *b = (const uint8_t *)&a.in.sin_addr;

		fm_format(buf, size, "%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], (unsigned int)ntohs(a.in.sin_port));
	} else if (n->length >= sizeof(a.in6) && a.in6.sin6_family == AF_INET6) {
		inet6_text(&a.in6, buf, size);
	} else if (n->length > 2 && a.un.sun_family == AF_UNIX) {
		fm_format(buf, size, "%s%s", a.un.sun_path[0] ? "" : "@", a.un.sun_path + !a.un.sun_path[0]);
	} else {
		fm_format(buf, size, "no name");
	}
}

int socket_name_move(struct socket_name *n)
{
	char path[sizeof(n->bytes) + 1] = { 0 }, buf[sizeof(((struct sockaddr_un *)0)->sun_path)];
	uint16_t family;
	const char *now;

	memcpy(&family, n->bytes, sizeof(family));
	if (family != AF_UNIX || n->length <= 2 || n->length > sizeof(n->bytes) || n->bytes[2] != '/')
		return 0;
	memcpy(path, n->bytes + 2, n->length - 2);
	now = fermata_path_now(path, buf, sizeof(buf));
	if (now != buf)
		return now ? 0 : -ENAMETOOLONG;
	n->length = (uint32_t)(2 + strlen(buf) + 1);
	memcpy(n->bytes + 2, buf, strlen(buf) + 1);
	return 0;
}

struct socket_end socket_end_of(const struct socket_name *n)
{
	struct sockaddr_in6 a6;
	struct sockaddr_in a4;
	struct socket_end e = { { 0 }, 0 };

	memcpy(&a4, n->bytes, sizeof(a4));
	memcpy(&a6, n->bytes, sizeof(a6));
	e.port = a4.sin_port;
	if (a4.sin_family == AF_INET) {
		e.address[10] = e.address[11] = 0xff;
		memcpy(e.address + 12, &a4.sin_addr, 4);
	} else {
		memcpy(e.address, &a6.sin6_addr, 16);
	}
	return e;
}
