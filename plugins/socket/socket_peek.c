/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies in the queue of a unix socket, looked at without taking it: message by message, with senders' names, credentials and
 * descriptors.
 *
 * SO_PEEK_OFF leads a peek along the queue: each begins where the one before ended. SO_PASSCRED is on meanwhile: credentials show where a
 * stream's bytes have different senders, and tell an empty packet from the end of the queue. Both are the program's again afterwards.
 *
 * Empty messages are seen once (socket_seen.c). Who is killed in the middle of a look leaves the two options as they are to the others. No state.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"

#define FDS_MAX 253 /* SCM_MAX_FD */
#define STREAM_PIECE (1u << 18)

struct peek { /* one look */
	long got;    /* bytes of it, or -errno */
	bool any;    /* something was there */
	struct ucred who; /* pid 0: without credentials */
	struct socket_name name;
	int fds[FDS_MAX];
	uint32_t fd_count;
	bool cut; /* descriptors, for which there was no number */
};

static void take_control(struct msghdr *m, struct peek *p)
{
	p->cut = m->msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&p->who, CMSG_DATA(c), sizeof(p->who));
			p->any = true;
		} else if (c->cmsg_type == SCM_RIGHTS && n <= sizeof(p->fds)) {
			memcpy(p->fds, CMSG_DATA(c), n);
			p->fd_count = (uint32_t)(n / sizeof(int));
			p->any = true;
		} else if (c->cmsg_type == 4 /* SCM_PIDFD */) {
			int fd;

			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
			raw_close(fd);
		}
	}
}

static void look(int fd, void *buf, size_t n, struct peek *p)
{
	uint8_t control[CMSG_SPACE(sizeof(p->fds)) + 128] __attribute__((aligned(8)));
	struct iovec v = { buf, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	memset(p, 0, sizeof(*p));
	do {
		m.msg_name = p->name.bytes;
		m.msg_namelen = sizeof(p->name.bytes);
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		p->got = RAW3(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (p->got == -EINTR);
	if (p->got < 0)
		return;
	p->name.length = m.msg_namelen;
	p->any = p->got > 0;
	take_control(&m, p);
}

static void close_all(struct peek *p)
{
	for (uint32_t i = 0; i < p->fd_count; i++)
		raw_close(p->fds[i]);
}

int socket_messages_reserve(struct socket_messages *b, size_t more)
{
	size_t room = b->room ? b->room : 1024;
	char *bytes;

	while (room < b->length + more)
		room *= 2;
	if (room == b->room)
		return 0;
	bytes = fermata_alloc(room);
	if (!bytes)
		return -ENOMEM;
	if (b->length)
		memcpy(bytes, b->bytes, b->length);
	fermata_free(b->bytes);
	b->bytes = bytes;
	b->room = room;
	return 0;
}

/* Adds a message of @n bytes, which the caller writes to *@ret. Its descriptors' numbers are the caller's matter, too. */
static int add(struct socket_messages *b, const struct peek *p, uint32_t fd_count, size_t n, char **ret)
{
	struct socket_message m = { .length = (uint32_t)n, .fd_count = fd_count, .name_length = p->name.length > 2 ? p->name.length : 0 };
	size_t head = sizeof(m) + fd_count * sizeof(int32_t) + m.name_length;
	int r = socket_messages_reserve(b, head + n + 8);

	if (r)
		return r;
	m.size = (uint32_t)ALIGN_UP(head + n, (size_t)8);
	if (p->who.pid > 0) {
		m.flags |= SOCKET_MESSAGE_CREDENTIALS;
		m.pid = (uint32_t)p->who.pid;
		m.uid = p->who.uid;
		m.gid = p->who.gid;
	}
	memset(b->bytes + b->length, 0, m.size);
	memcpy(b->bytes + b->length, &m, sizeof(m));
	memcpy(b->bytes + b->length + head - m.name_length, p->name.bytes, m.name_length);
	*ret = b->bytes + b->length + head;
	b->length += m.size;
	return 0;
}

/* ---- datagrams and packets ---- */

/* The message at SO_PEEK_OFF: 1, 0 when there is none, or -errno. The first look tells the size, and is the only one at an empty one. */
static int peek_message(int fd, struct socket_messages *b)
{
	struct peek p;
	size_t n;
	char *to;
	int r;

	look(fd, NULL, 0, &p);
	close_all(&p);
	if (p.got == -EAGAIN || (p.got >= 0 && !p.any))
		return 0;
	if (p.got < 0 || p.cut)
		return p.got < 0 ? (int)p.got : -EMFILE;
	n = (size_t)p.got;
	r = add(b, &p, p.fd_count, n, &to);
	if (r || !n)
		return r ? r : 1;
	look(fd, to, n, &p);
	close_all(&p);
	return p.got == (long)n ? 1 : p.got < 0 ? (int)p.got : -EAGAIN;
}

static int peek_packets(int fd, uint64_t ino, struct socket_messages *b)
{
	bool again = socket_seen(ino);
	struct peek p;
	int r;

	look(fd, NULL, 0, &p); /* a plain one */
	close_all(&p);
	if (p.got == -EAGAIN || (p.got >= 0 && !p.any)) {
		socket_seen_remove(ino);
		return 0;
	}
	if (again)
		return -ESTALE;
	if (p.got == 0) {
		char *none;

		r = add(b, &p, p.fd_count, 0, &none);
		if (r)
			return r;
	}
	r = socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, 0);
	while (r >= 0) {
		size_t before = b->length;

		r = peek_message(fd, b);
		if (r <= 0)
			break;
		if (before && ((const struct socket_message *)(const void *)(b->bytes + before))->length == 0)
			r = socket_seen_add(ino);
	}
	return r < 0 ? r : 0;
}

/* ---- streams ---- */

/* No look goes beyond: it would be told of an error that is the program's to be told, that the other end was closed with something unread. */
static size_t queued(int fd)
{
	int n = socket_queued(fd, SIOCINQ);

	return n > 0 ? (size_t)n : 0;
}

/*
 * How many of the @n bytes at @at, which @bytes are, come before those that carry descriptors. A shorter look would not tell: it shows the descriptors of
 * what comes next, too. But what cannot be copied whole is not shown, so here the last byte has nowhere to go.
 */
static size_t plain_bytes(int fd, size_t at, char *bytes, size_t n)
{
	struct iovec v[2] = { { bytes, n - 1 }, { NULL, 1 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	long got;

	socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, (int)at);
	do
		got = RAW3(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);
	while (got == -EINTR);
	return got > 0 ? (size_t)got : 0;
}

/*
 * What lies at @at, a piece at most: plain bytes, or from their first on such as carry descriptors, all of them (they are one buffer of the kernel's,
 * which is smaller than a piece): in a second look the rest would come with the same descriptors again.
 */
static int look_stream(int fd, size_t at, char *piece, struct peek *p)
{
	int r = socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, (int)at);
	size_t plain;

	look(fd, piece, STREAM_PIECE, p);
	plain = p->fd_count ? plain_bytes(fd, at, piece, (size_t)p->got) : 0;
	if (!plain)
		return r;
	close_all(p);
	p->fd_count = 0;
	p->got = (long)plain;
	return r;
}

static int peek_stream(int fd, struct socket_messages *b)
{
	char *piece = fermata_alloc(STREAM_PIECE), *to;
	int r = piece ? 0 : -ENOMEM;
	const size_t end = queued(fd);
	struct peek p = { 0 };

	for (size_t at = 0; !r && at < end; at += (size_t)p.got) {
		r = look_stream(fd, at, piece, &p);
		close_all(&p);
		if (r || p.got <= 0)
			break;
		p.name.length = 0;
		r = p.cut ? -EMFILE : add(b, &p, p.fd_count, (size_t)p.got, &to);
		if (!r)
			memcpy(to, piece, (size_t)p.got);
	}
	fermata_free(piece);
	return r ? r : p.got < 0 && p.got != -EAGAIN ? (int)p.got : 0;
}

/* ---- descriptors alone ---- */

static int take_each(struct peek *p, int (*take)(void *arg, int fd), void *arg)
{
	int r = p->cut ? -EMFILE : 0;

	for (uint32_t i = 0; i < p->fd_count; i++)
		if (r)
			raw_close(p->fds[i]);
		else
			r = take(arg, p->fds[i]);
	return r;
}

static int each_of_packets(int fd, uint64_t ino, int (*take)(void *arg, int fd), void *arg)
{
	struct peek p;
	int r = 0;

	for (size_t at = 0, n = 0; !r; n++) {
		r = socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, n ? (int)at : -1); /* the first: as peek_packets */
		look(fd, NULL, 0, &p);
		if (!p.any)
			return r;
		if (!r)
			r = take_each(&p, take, arg);
		if (!r && !p.got && n)
			r = socket_seen_add(ino);
		at += (size_t)p.got;
	}
	return r;
}

static int each_of_stream(int fd, int (*take)(void *arg, int fd), void *arg)
{
	char *piece = fermata_alloc(STREAM_PIECE);
	int r = piece ? 0 : -ENOMEM;
	const size_t end = queued(fd);
	struct peek p;

	for (size_t at = 0; !r && at < end; at += (size_t)p.got) {
		r = look_stream(fd, at, piece, &p);
		if (p.got <= 0)
			break;
		r = r ? r : take_each(&p, take, arg);
	}
	fermata_free(piece);
	return r;
}

static int failed(int fd, int err)
{
	switch (err) {
	case -ESTALE:
		return fermata_fail(-EAGAIN, "fd %d: its queue may hold an empty message, which cannot be looked at twice: try again when it "
				    "has been read", fd);
	case -EMFILE:
		return fermata_fail(err, "fd %d has descriptors in its queue, and there are no numbers free for them", fd);
	default:
		return fermata_fail(err, "what is queued in fd %d cannot be copied (errno %d)", fd, -err);
	}
}

/* Of packets the first look is told of an error, before them. 1: there is one, and nothing else; 0: there is none. */
static int error_first(int fd, int type)
{
	int events = type == SOCK_STREAM ? 0 : socket_poll(fd, POLLIN, 0);

	if (events <= 0 || !(events & POLLERR))
		return 0;
	/* A datagram may be empty; of packets, poll tells of an end like of one. */
	return !(type == SOCK_DGRAM ? events & POLLIN : queued(fd)) ? 1 : fermata_fail(-EAGAIN, "fd %d: an error, which the program has not been told of, comes before what is queued: try again when it has", fd);
}

struct options { /* the program's */
	int offset, credentials;
};

static struct options options_set(int fd)
{
	struct options o = { socket_get_int(fd, SOL_SOCKET, SO_PEEK_OFF), socket_get_int(fd, SOL_SOCKET, SO_PASSCRED) };

	socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
	if (!o.credentials)
		socket_set_int(fd, SOL_SOCKET, SO_PASSCRED, 1);
	return o;
}

static void options_put_back(int fd, struct options o)
{
	if (!o.credentials)
		socket_set_int(fd, SOL_SOCKET, SO_PASSCRED, 0);
	socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, o.offset);
}

int socket_peek_descriptors(int fd, int type, uint64_t ino, int (*take)(void *arg, int fd), void *arg)
{
	int r = error_first(fd, type);
	struct options o;

	if (r)
		return r < 0 ? r : 0;
	o = options_set(fd);
	r = type == SOCK_STREAM ? each_of_stream(fd, take, arg) : each_of_packets(fd, ino, take, arg);

	options_put_back(fd, o);
	return r ? failed(fd, r) : 0;
}

int socket_peek_unix(int fd, int type, uint64_t ino, struct socket_messages *ret)
{
	int r = error_first(fd, type);
	struct options o;

	memset(ret, 0, sizeof(*ret));
	if (r)
		return r < 0 ? r : 0;
	o = options_set(fd);
	r = type == SOCK_STREAM ? peek_stream(fd, ret) : peek_packets(fd, ino, ret);
	options_put_back(fd, o);
	if (!r)
		return 0;
	fermata_free(ret->bytes);
	memset(ret, 0, sizeof(*ret));
	return failed(fd, r);
}
