/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies in a connection when every process stands still, copied, and written into a connection. No state of its own.
 *
 * The usual case touches nothing. Bytes of TCP are in the receiver's queue once the sender's SIOCOUTQ is 0. The receiver copies its
 * queue with MSG_PEEK. What a stuck sender still has is socket_stuck.c's matter; what a unix socket has, socket_peek.c's.
 *
 * At restart the receiver holds a copy of its new peer's end and writes its content into that. When bytes do not fit at once, room is
 * made in steps: a larger receive buffer, unless the program has set it, as far as the kernel's limit for its own tuning; then a larger
 * send buffer, which the kernel does not tune any more from then on (what moves on makes it larger than we may); then the former in any case.
 * Much is put into a connection that is warm: the kernel tunes buffers and congestion window by what has moved, so something is sent, and thrown away, before. Before that its
 * receive buffer is made as large as it was: a window is turned into a buffer by the share of payload in what has come (scaling_ratio), which of a new connection is taken to be a
 * quarter; once much has come it is near one, and the largest buffer that can be asked for a fourth of what it was.
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
#define MUCH (4u << 20) /* bytes: what a connection takes at once that has just been made */
#define WARM (16u << 20) /* bytes: more than the kernel's buffers may become, three times */

int socket_queue_peek(int fd, char **ret, size_t *ret_len)
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
	got = socket_receive(fd, buf, (size_t)n, MSG_PEEK);
	err = got < 0 ? (int)got : got == n ? 0 : -EIO;
	if (!err) {
		*ret = buf;
		*ret_len = (size_t)n;
		return 0;
	}
	fermata_free(buf);
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
 * mark does that (kernel 4.18), and tells the window. The buffer becomes one to four times the mark.
 */
static void grow_receive(int fd, int size)
{
	int low = socket_get_int(fd, SOL_SOCKET, SO_RCVLOWAT);

	for (int part = 4; part && socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) < size; part /= 2)
		socket_set_int(fd, SOL_SOCKET, SO_RCVLOWAT, size / part);
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

void socket_queue_widen(const struct fermata_desc *d, struct socket_state *s)
{
	if (!s->widened)
		s->widened = socket_get_int(d->fd, SOL_SOCKET, SO_RCVBUF);
	grow_receive_beyond(d->fd);
}

/* A size that the program has set is its own again. What is in the queue stays. */
void socket_queue_narrow(const struct fermata_desc *d, struct socket_state *s)
{
	if (s->widened > 0 && socket_get_int(d->fd, SOL_SOCKET, SO_BUF_LOCK) & SOCKET_LOCK_RECEIVE)
		socket_set_int(d->fd, SOL_SOCKET, SO_RCVBUF, s->widened / 2);
	s->widened = 0;
}

void socket_queue_make_room(int fd, const struct socket_record *record)
{
	if (socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) < (int)record->receive_buffer)
		grow_receive(fd, (int)record->receive_buffer);
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
			grow_receive(fd, socket_get_int(fd, SOL_SOCKET, SO_RCVBUF) + 2 * (int)(len - done));
		else if (step == 1)
			grown = grow_send(to, len - done);
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

/* What there is, into @piece, whose bytes nobody needs: how much, or -errno. */
static long throw_away(int fd, char *piece)
{
	long got = 0, n;

	while ((n = socket_receive(fd, piece, PIECE, 0)) > 0)
		got += n;
	return n == -EAGAIN ? got : n ? n : -EPIPE;
}

/*
 * Before the content of @fd, and by the one who alone writes to @to and reads from @fd: nothing else can be under way. Where the kernel has no memory for it this does not end: then the
 * phase takes too long, and the restart fails. The checkpoint stays as it was.
 */
static int warm_up(int to, int fd, char *piece)
{
	size_t sent = 0, got = 0;
	long n;

	while (got < WARM || got < sent) {
		n = sent < WARM ? RAW6(SYS_sendto, to, piece, PIECE, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) : 0;
		if (n < 0 && n != -EAGAIN && n != -EINTR && n != -ENOBUFS && n != -ENOMEM)
			return (int)n;
		sent += n > 0 ? (size_t)n : 0;
		n = throw_away(fd, piece);
		if (n < 0)
			return (int)n;
		got += (size_t)n;
		if (!n)
			socket_pause();
	}
	return 0;
}

static int warm(int to, int fd)
{
	char *piece = fermata_alloc(PIECE);
	int r = piece ? warm_up(to, fd, piece) : -ENOMEM;

	fermata_free(piece);
	return r;
}

int socket_queue_put(int number, int peer_end, int fd, const struct socket_record *record, const char *content)
{
	size_t len = record->content_length;
	int r = 0;

	if (!len)
		return 0;
	if (record->domain == AF_UNIX)
		return socket_messages_put(number, peer_end, fd, record, content);
	socket_queue_make_room(fd, record);
	if (len > MUCH)
		r = warm(peer_end, fd);
	if (!r)
		r = socket_queue_write(peer_end, fd, content, len, false);
	if (r)
		return fermata_fail(r, "fd %d: the %zu bytes that had been queued do not fit into the new connection (errno %d)",
				    number, len, -r);
	return 0;
}
