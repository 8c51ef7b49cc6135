/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies in a connection when every process stands still. No state of its own.
 *
 * The usual case touches nothing. Bytes of a unix socket are always in the receiver's queue; those of TCP are there once the
 * sender's SIOCOUTQ is 0. The receiver copies its queue with MSG_PEEK.
 *
 * The stuck sender. A TCP receiver that has not read for long closes its window, and the rest of the bytes stays in the sender's
 * queue, where nobody can peek. Then the receiver's agent, and it alone, does this within one hook of the drain:
 *
 *     P = a copy of the sender's descriptor (pidfd_getfd)
 *     read from its own end until P has nothing more to send and nothing is queued    content = all bytes under way
 *     write the content into P                                                        the same bytes, under way again
 *
 * No program runs meanwhile, so nothing can come between. What if a process dies in it?
 *   - the receiver: the bytes were for it alone; its peer sees a reset, as when a program dies with unread data.
 *   - the sender: P keeps the connection open until the bytes are back; then the last close sends end of file after them.
 *   - the coordinator or a third process: this hook does not wait for anybody.
 * So the checkpoint may fail at any point after, with nothing to undo. It fits again: the same two queues held these bytes in
 * smaller pieces, each with the overhead of a buffer of its own. If it still does not, P's send buffer is made larger.
 *
 * At restart the receiver holds a copy of its new peer's end in the same way and writes its content into that.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "base/fdpass.h"
#include "plugins/socket/socket.h"

#define PATIENCE_MS 20	   /* a step of waiting for loopback's own work */
#define PATIENCE_STEPS 100 /* steps without progress until we give up */

static long receive(int fd, void *buf, size_t n, int flags)
{
	long r;

	do
		r = RAW6(SYS_recvfrom, fd, buf, n, flags | MSG_DONTWAIT, 0, 0);
	while (r == -EINTR);
	return r;
}

/*
 * As receive, for a unix socket: -EOPNOTSUPP where a descriptor lies in the queue. Room is given for credentials at most, so
 * none is received, MSG_CTRUNC tells.
 */
static long peek_unix(int fd, void *buf, size_t n, bool credentials)
{
	uint8_t control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
	struct iovec v = { buf, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	long r;

	if (credentials) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
	}
	do
		r = RAW3(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);
	while (r == -EINTR);
	return r >= 0 && m.msg_flags & MSG_CTRUNC ? -EOPNOTSUPP : r;
}

static int peek_by_offset(int fd, char *buf, size_t n)
{
	int before = socket_get_int(fd, SOL_SOCKET, SO_PEEK_OFF), r;
	bool credentials = socket_get_int(fd, SOL_SOCKET, SO_PASSCRED) > 0;
	size_t have = 0;
	long got = 1;

	r = socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, 0);
	if (r < 0)
		return r;
	while (have < n && got > 0) {
		got = peek_unix(fd, buf + have, n - have, credentials);
		have += got > 0 ? (size_t)got : 0;
	}
	socket_set_int(fd, SOL_SOCKET, SO_PEEK_OFF, before);
	return got < 0 ? (int)got : have == n ? 0 : -EIO;
}

int socket_queue_peek(int fd, const struct socket_record *r, char **ret, size_t *ret_len)
{
	int n = socket_queued(fd, SIOCINQ), err;
	char *buf;
	long got;

	*ret = NULL;
	*ret_len = 0;
	if (n <= 0)
		return n < 0 ? fermata_fail(n, "fd %d does not tell what it has queued (errno %d)", fd, -n) : 0;
	buf = fermata_alloc((size_t)n);
	if (!buf)
		return fermata_fail(-ENOMEM, "no memory for the %d bytes queued in fd %d", n, fd);
	if (r->domain == AF_UNIX) {
		err = peek_by_offset(fd, buf, (size_t)n);
	} else {
		got = receive(fd, buf, (size_t)n, MSG_PEEK);
		err = got < 0 ? (int)got : got == n ? 0 : -EIO;
	}
	if (!err) {
		*ret = buf;
		*ret_len = (size_t)n;
		return 0;
	}
	fermata_free(buf);
	if (err == -EOPNOTSUPP)
		return fermata_fail(err, "fd %d has a descriptor in its queue that was sent to it, which is not supported yet: "
				    "receive it before the checkpoint", fd);
	return fermata_fail(err, "the %d bytes queued in fd %d cannot be copied (errno %d)%s", n, fd, -err,
			    err == -EIO ? ": urgent data is not supported" : "");
}

struct taken {
	char *bytes;
	size_t len, room;
};

/* Reads what @fd has now: the bytes read, 0 when there are none, or -errno. */
static long take_some(int fd, struct taken *t)
{
	long got;

	if (t->room - t->len < 65536) {
		size_t room = t->room ? t->room * 2 : 1 << 20;
		char *more = fermata_alloc(room);

		if (!more)
			return -ENOMEM;
		if (t->len)
			memcpy(more, t->bytes, t->len);
		fermata_free(t->bytes);
		t->bytes = more;
		t->room = room;
	}
	got = receive(fd, t->bytes + t->len, t->room - t->len, 0);
	if (got > 0)
		t->len += (size_t)got;
	return got == -EAGAIN ? 0 : got;
}

static int take_all(int fd, int peer_end, struct taken *t)
{
	int idle = 0, under_way;
	long got;

	do {
		got = take_some(fd, t);
		under_way = socket_queued(peer_end, SIOCOUTQ);
		if (got == 0 && under_way) {
			if (++idle > PATIENCE_STEPS)
				return -ETIMEDOUT;
			socket_poll(fd, POLLIN, PATIENCE_MS);
		}
	} while (got > 0 || (got == 0 && under_way > 0));
	return got < 0 ? (int)got : under_way < 0 ? under_way : 0;
}

/* Writes until nothing more fits: the number of bytes written, or -errno. The kernel moves them on as far as it can. */
static long put_some(int to, const char *bytes, size_t len)
{
	size_t done = 0;
	int idle = 0;

	while (done < len) {
		long n = RAW6(SYS_sendto, to, bytes + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);

		if (n == -EINTR)
			continue;
		if (n < 0 && n != -EAGAIN)
			return n;
		if (n > 0) {
			done += (size_t)n;
			idle = 0;
		} else if (idle++ == 2) {
			break;
		} else {
			socket_poll(to, POLLOUT, PATIENCE_MS);
		}
	}
	return (long)done;
}

/* As put_some, all; with a larger send buffer for the time if it must be. */
static int put_all(int to, const char *bytes, size_t len)
{
	int size = socket_get_int(to, SOL_SOCKET, SO_SNDBUF), lock = socket_get_int(to, SOL_SOCKET, SO_BUF_LOCK);
	long n = put_some(to, bytes, len), more = 0;

	if (n < 0 || (size_t)n == len)
		return n < 0 ? (int)n : 0;
	socket_set_int(to, SOL_SOCKET, SO_SNDBUF, size / 2 + (int)(len - (size_t)n) + 65536);
	more = put_some(to, bytes + n, len - (size_t)n);
	socket_set_int(to, SOL_SOCKET, SO_SNDBUF, size / 2);
	if (lock >= 0)
		socket_set_int(to, SOL_SOCKET, SO_BUF_LOCK, lock);
	return more < 0 ? (int)more : (size_t)(n + more) < len ? -ENOBUFS : 0;
}

int socket_queue_take(int fd, struct socket_state *s)
{
	struct taken t = { 0 };
	int peer_end = fdpass_take((int)s->peer.pid, s->peer.fd), r, back;

	if (peer_end < 0)
		return fermata_fail(peer_end, "fd %d: its peer, fd %d of process %u, cannot be taken: pidfd_getfd is refused "
				    "(errno %d)", fd, s->peer.fd, s->peer.pid, -peer_end);
	r = take_all(fd, peer_end, &t);
	back = put_all(peer_end, t.bytes, t.len);
	raw_close(peer_end);
	if (r || back) {
		fermata_free(t.bytes);
		if (back)
			return fermata_fail(back, "fd %d: its connection has lost bytes: %zu did not go back (errno %d)", fd,
					    t.len, -back);
		return fermata_fail(r, "fd %d: what is under way to it does not arrive (errno %d)", fd, -r);
	}
	s->content = t.bytes;
	s->content_length = t.len;
	return 0;
}

int socket_queue_put(int number, int peer_end, int fd, const char *content, size_t len)
{
	int low = socket_get_int(fd, SOL_SOCKET, SO_RCVLOWAT), r;

	if (!len)
		return 0;
	/* Raising the low-water mark lets TCP's receive buffer grow as it had, without fixing its size. */
	if (len > 32768)
		socket_set_int(fd, SOL_SOCKET, SO_RCVLOWAT, len > 0x3fffffff ? 0x3fffffff : (int)len);
	r = put_all(peer_end, content, len);
	if (low > 0)
		socket_set_int(fd, SOL_SOCKET, SO_RCVLOWAT, low);
	if (r)
		return fermata_fail(r, "fd %d: the %zu bytes that had been queued do not fit into the new connection (errno %d)",
				    number, len, -r);
	return 0;
}
