/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A blocking call that writes, sends, or receives with MSG_WAITALL ends only when all is done. When a signal comes in its midst, it ends with what it has done so far, with
 * SA_RESTART too: a program without handlers never sees that, and may well not look. Our signal is one. So whoever was stopped in such a call and has got less than it asked for goes on
 * with the rest here, and answers for both.
 *
 * Whether a stop came at a call's end its frame tells: it stands right behind the system call, with what that answers (fermata_thread.cut, of call_continue). Not so where a handler of
 * the program's is due, or at work already: that ends the call as it would without us. What
 * else may make a call short (no room on the disk, a socket that does not block, the end) does so again: nothing more is moved, and the answer is the part. It has moved something, so
 * the error of the second call is not the program's: errno stays, and a send whose other end has gone has its SIGPIPE from the program's next one.
 *
 * A number that is smaller for other reasons as well is the program's to expect, and stays: of read from anything but memory devices and files, of splice.
 */
#include "agent/whole.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define MEMORY_DEVICES 1u /* their major number: /dev/zero, urandom, .. */

/* Again and again @call, whose answer it is, of what follows the @moved of @n, while it is cut. */
#define REST(n, moved, call)                                                          \
	do {                                                                          \
		const int saved = errno;                                              \
		ssize_t more;                                                         \
                                                                                      \
		do {                                                                  \
			const size_t left = (size_t)(n) - (size_t)(moved);            \
                                                                                      \
			whole_begin();                                                \
			more = (call);                                                \
			if (more > 0)                                                 \
				(moved) += more;                                      \
			if (!whole_is_cut(more) || (size_t)more == left)              \
				break;                                                \
		} while (1);                                                          \
		errno = saved;                                                        \
	} while (0)

static bool is_stream(int fd)
{
	int type = 0, saved = errno;
	socklen_t length = sizeof(type);
	bool r = !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_STREAM;

	errno = saved;
	return r;
}

static bool is_memory(int fd)
{
	struct stat st;

	return !RAW2(SYS_fstat, fd, &st) && (S_ISREG(st.st_mode) || (S_ISCHR(st.st_mode) && major(st.st_rdev) == MEMORY_DEVICES));
}

/* ---- one buffer ---- */

ssize_t whole_write(int fd, const void *data, size_t n, ssize_t moved)
{
	REST(n, moved, real.write(fd, (const char *)data + moved, left));
	return moved;
}

EXPORT ssize_t read(int fd, void *to, size_t n)
{
	ssize_t r;

	WRAP_READY(read);
	whole_begin();
	r = real.read(fd, to, n);
	if (whole_is_cut(r) && (size_t)r < n && is_memory(fd))
		REST(n, r, real.read(fd, (char *)to + r, left));
	return r;
}

EXPORT ssize_t __read_chk(int fd, void *to, size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
	return read(fd, to, n);
}

EXPORT ssize_t send(int fd, const void *data, size_t n, int flags)
{
	ssize_t r;

	WRAP_READY(send);
	whole_begin();
	r = real.send(fd, data, n, flags);
	if (whole_is_cut(r) && (size_t)r < n)
		REST(n, r, real.send(fd, (const char *)data + r, left, flags | MSG_NOSIGNAL));
	return r;
}

EXPORT ssize_t sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t length)
{
	ssize_t r;

	WRAP_READY(sendto);
	whole_begin();
	r = real.sendto(fd, data, n, flags, to, length);
	if (whole_is_cut(r) && (size_t)r < n)
		REST(n, r, real.sendto(fd, (const char *)data + r, left, flags | MSG_NOSIGNAL, to, length));
	return r;
}

static bool waits_for_all(int fd, int flags)
{
	return (flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL && is_stream(fd);
}

EXPORT ssize_t recv(int fd, void *to, size_t n, int flags)
{
	ssize_t r;

	WRAP_READY(recv);
	whole_begin();
	r = real.recv(fd, to, n, flags);
	if (whole_is_cut(r) && (size_t)r < n && waits_for_all(fd, flags))
		REST(n, r, real.recv(fd, (char *)to + r, left, flags));
	return r;
}

EXPORT ssize_t __recv_chk(int fd, void *to, size_t n, size_t room, int flags)
{
	if (n > room)
		__chk_fail();
	return recv(fd, to, n, flags);
}

EXPORT ssize_t recvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *from, socklen_t *length)
{
	ssize_t r;

	WRAP_READY(recvfrom);
	whole_begin();
	r = real.recvfrom(fd, to, n, flags, from, length);
	if (whole_is_cut(r) && (size_t)r < n && waits_for_all(fd, flags))
		REST(n, r, real.recv(fd, (char *)to + r, left, flags));
	return r;
}

EXPORT ssize_t __recvfrom_chk(int fd, void *to, size_t n, size_t room, int flags, struct sockaddr *from, socklen_t *length)
{
	if (n > room)
		__chk_fail();
	return recvfrom(fd, to, n, flags, from, length);
}

EXPORT ssize_t getrandom(void *to, size_t n, unsigned int flags)
{
	ssize_t r;

	WRAP_READY(getrandom);
	whole_begin();
	r = real.getrandom(to, n, flags);
	if (whole_is_cut(r) && (size_t)r < n)
		REST(n, r, real.getrandom((char *)to + r, left, flags));
	return r;
}

#define SENDFILE(name, offset_type)                                                   \
	EXPORT ssize_t name(int to, int from, offset_type *offset, size_t n)          \
	{                                                                             \
		ssize_t r;                                                            \
                                                                                      \
		WRAP_READY(name);                                                     \
		whole_begin();                                                        \
		r = real.name(to, from, offset, n);                                   \
		if (whole_is_cut(r) && (size_t)r < n)                                        \
			REST(n, r, real.name(to, from, offset, left)); /* which the kernel has moved on */ \
		return r;                                                             \
	}

SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

/* ---- several buffers: a begun one to its end, then those behind it ---- */

struct parts {
	int fd, flags;
	ssize_t (*one)(const struct parts *p, void *at, size_t n);
	ssize_t (*rest)(const struct parts *p, const struct iovec *iov, size_t count);
};

static size_t length_of(const struct iovec *iov, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += iov[i].iov_len;
	return n;
}

/* What has been moved in all. */
static ssize_t finish(const struct parts *p, const struct iovec *iov, size_t count, ssize_t moved)
{
	const int saved = errno;
	size_t at = (size_t)moved; /* in the first of @iov */
	ssize_t more;
	size_t left;

	for (;;) {
		while (count && at >= iov->iov_len) {
			at -= iov->iov_len;
			iov++;
			count--;
		}
		if (!count)
			break;
		left = at ? iov->iov_len - at : length_of(iov, count);
		whole_begin();
		more = at ? p->one(p, (char *)iov->iov_base + at, left) : p->rest(p, iov, count);
		if (more <= 0)
			break;
		moved += more;
		at += (size_t)more;
		if ((size_t)more < left && !whole_is_cut(more))
			break;
	}
	errno = saved;
	return moved;
}

static ssize_t write_one(const struct parts *p, void *at, size_t n)
{
	return real.write(p->fd, at, n);
}

static ssize_t write_rest(const struct parts *p, const struct iovec *iov, size_t count)
{
	return real.writev(p->fd, iov, (int)count);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	ssize_t r;

	WRAP_READY(writev);
	whole_begin();
	r = real.writev(fd, iov, count);
	if (whole_is_cut(r))
		r = finish(&(struct parts){ fd, 0, write_one, write_rest }, iov, (size_t)count, r);
	return r;
}

static ssize_t send_one(const struct parts *p, void *at, size_t n)
{
	return real.send(p->fd, at, n, p->flags | MSG_NOSIGNAL);
}

static ssize_t send_rest(const struct parts *p, const struct iovec *iov, size_t count)
{
	return real.sendmsg(p->fd, &(struct msghdr){ .msg_iov = (struct iovec *)iov, .msg_iovlen = count }, p->flags | MSG_NOSIGNAL);
}

/* What goes along has gone with the first part. */
EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t r;

	WRAP_READY(sendmsg);
	whole_begin();
	r = real.sendmsg(fd, m, flags);
	if (whole_is_cut(r) && is_stream(fd))
		r = finish(&(struct parts){ fd, flags, send_one, send_rest }, m->msg_iov, m->msg_iovlen, r);
	return r;
}

static ssize_t recv_one(const struct parts *p, void *at, size_t n)
{
	return real.recv(p->fd, at, n, p->flags);
}

static ssize_t recv_rest(const struct parts *p, const struct iovec *iov, size_t count)
{
	return real.recvmsg(p->fd, &(struct msghdr){ .msg_iov = (struct iovec *)iov, .msg_iovlen = count }, p->flags);
}

/* Where something has come along the kernel ends the call by itself. */
EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t r;

	WRAP_READY(recvmsg);
	whole_begin();
	r = real.recvmsg(fd, m, flags);
	if (whole_is_cut(r) && !m->msg_controllen && waits_for_all(fd, flags))
		r = finish(&(struct parts){ fd, flags, recv_one, recv_rest }, m->msg_iov, m->msg_iovlen, r);
	return r;
}

/* ---- several messages: the last one that it has begun may be so in part ---- */

static int finish_messages(int fd, struct mmsghdr *m, unsigned int n, int flags, int sent)
{
	const struct parts p = { fd, flags, send_one, send_rest };
	const bool stream = is_stream(fd);
	const int saved = errno;
	int more;

	for (;;) {
		struct mmsghdr *last = &m[sent - 1];

		if (stream)
			last->msg_len = (unsigned int)finish(&p, last->msg_hdr.msg_iov, last->msg_hdr.msg_iovlen, last->msg_len);
		if ((unsigned int)sent == n || (stream && last->msg_len < length_of(last->msg_hdr.msg_iov, last->msg_hdr.msg_iovlen)))
			break;
		whole_begin();
		more = real.sendmmsg(fd, m + sent, n - (unsigned int)sent, flags);
		if (more <= 0)
			break;
		sent += more;
		if (!whole_is_cut(more))
			break;
	}
	errno = saved;
	return sent;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	int r;

	WRAP_READY(sendmmsg);
	whole_begin();
	r = real.sendmmsg(fd, m, n, flags);
	return whole_is_cut(r) ? finish_messages(fd, m, n, flags, r) : r;
}
