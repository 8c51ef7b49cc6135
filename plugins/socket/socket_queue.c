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
 * So the checkpoint may fail at any point after, with nothing to undo. It fits again: the same two buffers held these bytes, in
 * smaller pieces with more overhead. Reading fast would make the receive buffer grow, so it is locked for the time: else a job would
 * have more under way at each checkpoint. If the bytes do not fit at once (the kernel may be short of memory for sockets),
 * first the send buffer is made larger, then the receive buffer, as far as the kernel's limits for its own tuning.
 *
 * At restart the receiver holds a copy of its new peer's end in the same way and writes its content into that.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/fdpass.h"
#include "plugins/socket/socket.h"

#define STEP_MS 2	 /* loopback's own work takes less */
#define TAKE_STEPS 1000	 /* steps without progress, while bytes are known to be under way */
#define PUT_STEPS 50	 /* the same, for one size of the buffers */
#define LAST_STEPS 10000 /* the same, when giving up would lose bytes */

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

static void pause_step(void)
{
	const struct timespec step = { 0, STEP_MS * 1000000 };

	RAW2(SYS_nanosleep, &step, NULL);
}

/* A peek makes TCP tell the peer when its window has become much larger. */
static void tell_window(int fd)
{
	char c;

	receive(fd, &c, 1, MSG_PEEK);
}

/*
 * Lets the receive buffer of @fd grow to about @size bytes, as the kernel's own tuning would, without locking it: a low-water
 * mark does that (kernel 4.18), and tells the window.
 */
static void grow_receive(int fd, int size)
{
	int low = socket_get_int(fd, SOL_SOCKET, SO_RCVLOWAT);

	socket_set_int(fd, SOL_SOCKET, SO_RCVLOWAT, size / 2);
	socket_set_int(fd, SOL_SOCKET, SO_RCVLOWAT, low > 0 ? low : 1);
	socket_set_int(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0x3fffffff); /* the mark has set it to half the buffer */
	tell_window(fd);
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
			if (++idle > TAKE_STEPS)
				return -ETIMEDOUT;
			pause_step();
		}
	} while (got > 0 || (got == 0 && under_way > 0));
	return got < 0 ? (int)got : under_way < 0 ? under_way : 0;
}

/*
 * Writes until nothing more fits for @steps: the number of bytes written, or -errno. The kernel moves them on to @fd, the
 * other end, as far as it can.
 */
static long put_some(int to, int fd, const char *bytes, size_t len, int steps)
{
	size_t done = 0;
	int idle = 0;

	while (done < len && idle < steps) {
		long n = RAW6(SYS_sendto, to, bytes + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);

		if (n == -EINTR)
			continue;
		if (n < 0 && n != -EAGAIN)
			return n;
		if (n > 0) {
			done += (size_t)n;
			idle = 0;
			continue;
		}
		tell_window(fd);
		if (idle++)
			pause_step();
	}
	return (long)done;
}

/* As put_some, all; with larger buffers if it must be. */
static int put_all(int to, int fd, const char *bytes, size_t len, int last_steps)
{
	int size = socket_get_int(to, SOL_SOCKET, SO_SNDBUF), lock = socket_get_int(to, SOL_SOCKET, SO_BUF_LOCK);
	long n = put_some(to, fd, bytes, len, PUT_STEPS), done = n;

	if (n < 0 || (size_t)done == len)
		return n < 0 ? (int)n : 0;
	socket_set_int(to, SOL_SOCKET, SO_SNDBUF, size / 2 + (int)(len - (size_t)done) + 65536);
	n = put_some(to, fd, bytes + done, len - (size_t)done, PUT_STEPS);
	done += n > 0 ? n : 0;
	for (int i = 0; i < 2 && n >= 0 && (size_t)done < len; i++) {
		grow_receive(fd, i ? 0x7fffffff : socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) + 2 * (int)(len - (size_t)done));
		n = put_some(to, fd, bytes + done, len - (size_t)done, i ? last_steps : PUT_STEPS);
		done += n > 0 ? n : 0;
	}
	socket_set_int(to, SOL_SOCKET, SO_SNDBUF, size / 2);
	if (lock >= 0)
		socket_set_int(to, SOL_SOCKET, SO_BUF_LOCK, lock);
	return n < 0 ? (int)n : (size_t)done < len ? -ENOBUFS : 0;
}

static int take_and_put_back(int fd, int peer_end, struct socket_state *s)
{
	int lock = socket_get_int(fd, SOL_SOCKET, SO_BUF_LOCK), r, back;
	struct taken t = { 0 };

	if (lock >= 0)
		socket_set_int(fd, SOL_SOCKET, SO_BUF_LOCK, lock | 2 /* SOCK_RCVBUF_LOCK */);
	r = take_all(fd, peer_end, &t);
	if (lock >= 0)
		socket_set_int(fd, SOL_SOCKET, SO_BUF_LOCK, lock);
	back = put_all(peer_end, fd, t.bytes, t.len, LAST_STEPS);
	if (!r && !back) {
		s->content = t.bytes;
		s->content_length = t.len;
		return 0;
	}
	fermata_free(t.bytes);
	if (back)
		return fermata_fail(back, "fd %d: its connection has lost bytes of %zu that were under way (errno %d)", fd, t.len,
				    -back);
	return fermata_fail(r, "fd %d: what is under way to it does not arrive (errno %d)", fd, -r);
}

int socket_queue_take(int fd, struct socket_state *s)
{
	int peer_end = fdpass_take((int)s->peer.pid, s->peer.fd), r;

	if (peer_end < 0)
		return fermata_fail(peer_end, "fd %d: its peer, fd %d of process %u, cannot be taken: pidfd_getfd is refused "
				    "(errno %d)", fd, s->peer.fd, s->peer.pid, -peer_end);
	r = take_and_put_back(fd, peer_end, s);
	raw_close(peer_end);
	return r;
}

int socket_queue_put(int number, int peer_end, int fd, const struct socket_record *record, const char *content)
{
	size_t len = record->content_length;
	int r;

	if (!len)
		return 0;
	if (record->domain != AF_UNIX && socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) < (int)record->receive_buffer)
		grow_receive(fd, (int)record->receive_buffer);
	r = put_all(peer_end, fd, content, len, PUT_STEPS * 20);
	if (r)
		return fermata_fail(r, "fd %d: the %zu bytes that had been queued do not fit into the new connection (errno %d)",
				    number, len, -r);
	return 0;
}
