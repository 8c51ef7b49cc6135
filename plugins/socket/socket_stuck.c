/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stuck TCP sender. No state of its own.
 *
 * A receiver that has not read for long closes its window, and the rest of the bytes stays in the sender's queue, where nobody can peek.
 * Then the receiver's agent, and it alone, does this within one hook of the drain:
 *
 *     P = a copy of the sender's descriptor (pidfd_getfd)
 *     W = a copy of the held end of the sender's guard (socket_guard.c); both have the expected inodes
 *     read from its own end until P has nothing more to send and nothing is queued    content = all bytes under way
 *     write the content into P                                                        the same bytes, under way again
 *     close W
 *
 * The stream is in pieces between the first read and the last write, so nobody may read, write or forget it there:
 *   - No program runs that holds either end, for each process that does (the sender; who shares its socket; who shares the
 *     receiver's) made or watches the guard since an earlier round, and waits on its way out until W is closed: also when the
 *     checkpoint fails, when the coordinator gives up, and when it dies. The receiver's own threads stand until this hook is over.
 *     A W with the right inode is proof that none of them had gone on before; if it cannot be had, nothing has been touched.
 *   - It ends. Before the first read, there is memory for all bytes, and they are known to fit in again: the two buffers are as large
 *     as what they hold, or may become larger than that (fits_again). Then there is no time limit and no way out but the end of the connection. Only the machine's memory for
 *     sockets can make it last. The send buffer is locked, or a shortage would make the kernel shrink it; the receive buffer while
 *     reading, or reading fast would make it grow, and a job would have more under way at each checkpoint.
 *   - The sender dies: P keeps the connection open until the bytes are back; then the last close sends end of file after them.
 *   - The receiver dies, its kernel closes P, W and its own end. The bytes were for it: its peer sees a reset, as when a program dies
 *     with unread data. SO_LINGER does that, as the queue may be empty by now. Who shares its end resets it himself (the guard's marks).
 *   - The connection dies (TCP_USER_TIMEOUT): what was taken cannot come back, so our end is reset, too: nobody reads past the hole.
 *   - The coordinator or a third process dies: this hook does not wait for anybody.
 *
 * Both directions of a connection may be stuck: two guards, two hooks side by side, each waits for the kernel alone. Both lock and unlock both sockets, at any moments of each other's: each
 * puts what was noted before any of them began (SO_BUF_LOCK has no bit that could be changed alone), so that this is what is there in the end. Who goes on longer does without a lock for the rest.
 */
#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <poll.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define SLACK 131072	/* the kernel puts one more packet into a buffer before it is full */
#define BOTH (SOCKET_LOCK_SEND | SOCKET_LOCK_RECEIVE)
#define WARN_STEPS 2500 /* pauses without progress, before the user is told */

struct stuck {
	int fd;	    /* the receiving end */
	int sender; /* P */
	int held;   /* W */
	int lock, sender_lock; /* SO_BUF_LOCK of the two, as it was; -errno: a kernel before 5.14 */
	char *bytes;
	size_t len, room;
};

static int stuck_open(struct stuck *k, const struct socket_state *s, const struct socket_guard *guard)
{
	k->sender = fdpass_take((int)s->peer.pid, s->peer.fd);
	if (k->sender < 0)
		return fermata_fail(k->sender, "fd %d: its peer, fd %d of process %u, cannot be taken: pidfd_getfd is refused "
				    "(errno %d)", k->fd, s->peer.fd, s->peer.pid, -k->sender);
	k->held = socket_guard_hold(guard);
	if (k->held < 0 || !socket_is_inode(k->sender, s->record.peer_ino))
		return fermata_fail(-ESTALE, "fd %d: process %u, which sends to it, has gone on meanwhile (errno %d)", k->fd,
				    s->peer.pid, k->held < 0 ? -k->held : 0);
	return 0;
}

static void stuck_close(struct stuck *k)
{
	if (k->sender >= 0)
		raw_close(k->sender);
	if (k->held >= 0)
		raw_close(k->held);
}

static bool polls(int fd, int event)
{
	int events = socket_poll(fd, event, 0);

	return events > 0 && events & event;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The third number: as large as the kernel's own tuning lets a receive buffer become, of IPv4 and IPv6. */
static uint64_t receive_limit(void)
{
	char text[96];
	uint64_t v = 0;
	int field = 0;

	if (raw_read_file("/proc/sys/net/ipv4/tcp_rmem", text, sizeof(text)) <= 0)
		return 0;
	for (const char *p = text; *p && field < 3; p++)
		if (*p >= '0' && *p <= '9')
			v = v * 10 + (uint64_t)(*p - '0');
		else if (++field < 3)
			v = 0;
	return v;
}

/*
 * A shortage of memory, or the program, may have made the sender's buffer smaller than what is in it. And where both are as large as the kernel lets them become, all may be used but what
 * could not be filled again: a window is no longer opened for the last sixteenth of a buffer (__tcp_select_window), and bytes come in other pieces than before.
 */
static bool fits_again(const struct stuck *k)
{
	const int need = (int)((SK_MEMINFO_WMEM_QUEUED + 1) * sizeof(uint32_t));
	uint32_t from[SK_MEMINFO_VARS], to[SK_MEMINFO_VARS];
	uint64_t send, receive;

	if (socket_get(k->sender, SOL_SOCKET, SO_MEMINFO, from, sizeof(from)) < need || socket_get(k->fd, SOL_SOCKET, SO_MEMINFO, to, sizeof(to)) < need)
		return true; /* a kernel before 4.12 */
	send = larger(from[SK_MEMINFO_SNDBUF], (uint64_t)socket_send_buffer_limit());
	receive = larger(to[SK_MEMINFO_RCVBUF], receive_limit());
	return from[SK_MEMINFO_WMEM_QUEUED] <= send + SLACK && (uint64_t)from[SK_MEMINFO_WMEM_QUEUED] + to[SK_MEMINFO_RMEM_ALLOC] + SLACK <= send + receive - receive / 16;
}

/* All that can fail does so here. In this order: a byte that has left the sender's queue by the first look is in ours at the second. */
static int stuck_prepare(struct stuck *k)
{
	int out = socket_queued(k->sender, SIOCOUTQ), in = socket_queued(k->fd, SIOCINQ);

	if (out < 0 || in < 0)
		return fermata_fail(out < 0 ? out : in, "fd %d does not tell what is under way to it", k->fd);
	if (polls(k->fd, POLLPRI))
		return fermata_fail(-EOPNOTSUPP, "fd %d has urgent data in its queue, which is not supported", k->fd);
	if (!fits_again(k))
		return fermata_fail(-EAGAIN, "fd %d: its peer has more to send than its buffer may hold now: try again when some of it "
				    "has been read", k->fd);
	k->room = (size_t)out + (size_t)in + 1;
	k->bytes = fermata_alloc(k->room);
	return k->bytes ? 0 : fermata_fail(-ENOMEM, "no memory for the %zu bytes under way to fd %d", k->room, k->fd);
}

/* Asked in this order: when the sender has nothing more to send, all of it lies in our queue. */
static int take_all(struct stuck *k)
{
	int idle = 0;

	for (;;) {
		int under_way = socket_queued(k->sender, SIOCOUTQ);
		long got = socket_receive(k->fd, k->bytes + k->len, k->room - k->len, 0);

		if (got > 0) {
			k->len += (size_t)got;
			idle = 0;
			continue;
		}
		if (got != -EAGAIN)
			return got ? (int)got : -EPIPE;
		if (!under_way)
			return 0;
		if (polls(k->sender, POLLHUP))
			return -EPIPE;
		if (++idle == WARN_STEPS)
			log_warn("fd %d: %d bytes of its TCP connection do not arrive; nothing is lost", k->fd, under_way);
		socket_pause();
	}
}

/* @sender, @receiver: what of theirs is to keep its size, besides what the program has set. */
static void lock_buffers(const struct stuck *k, int sender, int receiver)
{
	if (k->lock < 0 || k->sender_lock < 0)
		return;
	socket_set_int(k->sender, SOL_SOCKET, SO_BUF_LOCK, k->sender_lock | sender);
	socket_set_int(k->fd, SOL_SOCKET, SO_BUF_LOCK, k->lock | receiver);
}

static int take_and_put_back(struct stuck *k)
{
	const struct linger reset = { 1, 0 };
	struct linger linger = { 0, 0 };
	int r;

	socket_get(k->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	socket_guard_mark(k->held);
	socket_set(k->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	lock_buffers(k, BOTH, BOTH);
	r = take_all(k);
	lock_buffers(k, BOTH, SOCKET_LOCK_SEND); /* it may become larger, to have all of it again */
	if (!r)
		r = socket_queue_write(k->sender, k->fd, k->bytes, k->len, true);
	lock_buffers(k, 0, 0);
	if (r)
		socket_reset(k->fd);
	socket_set(k->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	socket_guard_mark(k->held);
	return r;
}

int socket_stuck_take(struct fermata_desc *d, struct socket_state *s, const struct socket_guard *guard)
{
	struct stuck k = { .fd = d->fd, .sender = -EBADF, .held = -EBADF, .lock = s->lock, .sender_lock = guard->lock };
	int r = stuck_open(&k, s, guard);

	if (!r)
		r = stuck_prepare(&k);
	if (!r) {
		r = take_and_put_back(&k);
		if (r)
			fermata_fail(r, "fd %d: its connection broke while it was looked into (errno %d)", k.fd, -r);
	}
	stuck_close(&k);
	if (r) {
		fermata_free(k.bytes);
		return r;
	}
	s->content = k.bytes;
	s->content_length = k.len;
	return 0;
}
