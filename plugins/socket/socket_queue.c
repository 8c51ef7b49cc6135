/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies in a connection when every process stands still, copied, and written into a connection. No state of its own.
 *
 * The usual case touches nothing. Bytes of a unix socket are always in the receiver's queue; those of TCP are there once the
 * sender's SIOCOUTQ is 0. The receiver copies its queue with MSG_PEEK. What a stuck TCP sender still has is socket_stuck.c's matter.
 *
 * At restart the receiver holds a copy of its new peer's end and writes its content into that. When bytes do not fit at once, room is
 * made in steps: a larger send buffer, then a larger receive buffer, as far as the kernel's limits for its own tuning.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define PUT_STEPS 50   /* steps without progress, for one size of the buffers */
#define LAST_STEPS 1000 /* the same, when they cannot be made larger */
#define LAST_STEP 3
#define PIECE (1u << 18)

/*
 * As socket_receive, for a unix socket: -EOPNOTSUPP where a descriptor lies in the queue. Room is given for credentials at most, so
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
		got = socket_receive(fd, buf, (size_t)n, MSG_PEEK);
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

/* A peek makes TCP tell the peer when its window has become much larger. */
static void tell_window(int fd)
{
	char c;

	socket_receive(fd, &c, 1, MSG_PEEK);
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

/*
 * Writes until nothing more fits for @steps: the number of bytes written, or -errno. The kernel moves them on to @fd, the
 * other end, as far as it can.
 */
static long put_some(int to, int fd, const char *bytes, size_t len, int steps, enum fault fault)
{
	size_t done = 0;
	int idle = 0;

	while (done < len && idle < steps) {
		size_t piece = len - done < PIECE ? len - done : PIECE;
		long n = fault_point(fault) ? -ECONNRESET :
					      RAW6(SYS_sendto, to, bytes + done, piece, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);

		if (n == -EINTR)
			continue;
		if (n < 0 && n != -EAGAIN && n != -ENOBUFS && n != -ENOMEM)
			return n;
		if (n > 0) {
			done += (size_t)n;
			idle = 0;
			continue;
		}
		tell_window(fd);
		if (idle++)
			socket_pause();
	}
	return (long)done;
}

int socket_send_buffer_limit(void)
{
	int fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), limit;

	if (fd < 0)
		return fd;
	socket_set_int(fd, SOL_SOCKET, SO_SNDBUF, 0x3fffffff);
	limit = socket_get_int(fd, SOL_SOCKET, SO_SNDBUF);
	raw_close(fd);
	return limit;
}

/* SO_SNDBUF cuts at net.core.wmem_max, which may be less than TCP has tuned the buffer to: only ever larger. */
static bool grow_send(int to, size_t more)
{
	int size = socket_get_int(to, SOL_SOCKET, SO_SNDBUF), limit = socket_send_buffer_limit();
	size_t want = (size_t)size + 2 * more + 131072;

	if (size <= 0 || limit <= size)
		return false;
	socket_set_int(to, SOL_SOCKET, SO_SNDBUF, (want < (size_t)limit ? (int)want : limit) / 2);
	return true;
}

/* A size that the program has set itself limits the kernel's tuning, and with it us; it is set aside for a moment. */
static void grow_receive_beyond(int fd)
{
	int lock = socket_get_int(fd, SOL_SOCKET, SO_BUF_LOCK);

	if (lock >= 0)
		socket_set_int(fd, SOL_SOCKET, SO_BUF_LOCK, lock & ~SOCKET_LOCK_RECEIVE);
	grow_receive(fd, 0x7fffffff);
	if (lock >= 0)
		socket_set_int(fd, SOL_SOCKET, SO_BUF_LOCK, lock);
}

static void warn_of_no_room(int fd, size_t len)
{
	struct socket_name local, remote;
	char from[72] = "?", to[72] = "?";

	if (!socket_name_get(fd, false, &local))
		socket_name_text(&local, to, sizeof(to));
	if (!socket_name_get(fd, true, &remote))
		socket_name_text(&remote, from, sizeof(from));
	log_warn("%zu bytes of the TCP connection from %s to %s wait to be put back: the kernel has no room for them now; "
		 "nothing is lost", len, from, to);
}

int socket_queue_write(int to, int fd, const char *bytes, size_t len, bool back)
{
	int size = socket_get_int(to, SOL_SOCKET, SO_SNDBUF), lock = socket_get_int(to, SOL_SOCKET, SO_BUF_LOCK), step = 0;
	enum fault fault = back ? FAULT_SOCKET_IN_PUT_BACK : FAULT_NONE;
	size_t done = 0;
	bool grown = false;
	long n;

	while ((n = put_some(to, fd, bytes + done, len - done, step < LAST_STEP ? PUT_STEPS : LAST_STEPS, fault)) >= 0) {
		done += (size_t)n;
		if (done == len || (step == LAST_STEP && !back))
			break;
		if (step == 0)
			grown = grow_send(to, len - done);
		else if (step == 1)
			grow_receive(fd, socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) + 2 * (int)(len - done));
		else if (step == 2)
			grow_receive_beyond(fd);
		else if (step == LAST_STEP)
			warn_of_no_room(fd, len - done);
		step++;
	}
	if (grown)
		socket_set_int(to, SOL_SOCKET, SO_SNDBUF, size / 2);
	if (grown && lock >= 0)
		socket_set_int(to, SOL_SOCKET, SO_BUF_LOCK, lock);
	return n < 0 ? (int)n : done < len ? -ENOBUFS : 0;
}

int socket_queue_put(int number, int peer_end, int fd, const struct socket_record *record, const char *content)
{
	size_t len = record->content_length;
	int r;

	if (!len)
		return 0;
	if (record->domain != AF_UNIX && socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) < (int)record->receive_buffer)
		grow_receive(fd, (int)record->receive_buffer);
	r = socket_queue_write(peer_end, fd, content, len, false);
	if (r)
		return fermata_fail(r, "fd %d: the %zu bytes that had been queued do not fit into the new connection (errno %d)",
				    number, len, -r);
	return 0;
}
