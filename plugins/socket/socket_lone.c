/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP connections whose other end nobody in the job holds. What the kernel says of that end tells which they are:
 *
 *   an orphan	 it is closed: what it has sent may still be read, and then the end
 *   pending	 it waits in the queue of a listener, not yet accepted (socket_pending.c). Of one whose client has sent something, nobody can look at that: refused for the moment
 *   outside	 otherwise: the checkpoint is refused with both addresses, or, by --external, it is an orphan that was reset
 *
 * A server that answers, and closes, may have sent more than our receive buffer takes. The rest waits in the kernel, behind an end by which nobody can send anything again, so what is taken out cannot be put back
 * (socket_stuck.c does that with a sender that is open). But the buffer can be widened: then all comes, and its end, and lies there to be copied, as it does where a reader is only late. Likewise where the sender has shut
 * down, but is there. A size that the program has set is its own again afterwards; what is in the queue stays. No state.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

#include "base/sys.h"
#include "plugins/socket/socket_tcp.h"

#define STILL 50 /* pauses without a byte, or without an end */

static bool end_has_come(int fd)
{
	struct tcp_info info = { 0 };

	return socket_get(fd, IPPROTO_TCP, TCP_INFO, &info, sizeof(info)) > 0 && STATE(info.tcpi_state) & (STATES_GOT_FIN | STATE(TCP_CLOSE));
}

/* One that was reset, whose end is not there any more: that is still on its way. */
static bool end_comes_soon(int fd)
{
	for (int still = 0; still < STILL; still++) {
		if (end_has_come(fd))
			return true;
		socket_pause();
	}
	return false;
}

int socket_lone_let_in(struct fermata_desc *d, struct socket_state *s)
{
	int had = -1, have;

	if (end_has_come(d->fd))
		return 0;
	socket_queue_widen(d, s);
	for (int still = 0; still < STILL; still++) {
		if (end_has_come(d->fd))
			return 0;
		have = socket_queued(d->fd, SIOCINQ);
		if (have > had)
			still = 0;
		had = have;
		socket_pause();
	}
	return fermata_fail(-EAGAIN, "fd %d: its other end was closed with more under way than the buffers of a connection may hold: try again when some of it has been read", d->fd);
}

/* It has asked for a connection, and got none: no handshake has left a trace. */
static bool was_refused(int fd)
{
	struct tcp_info i = { 0 };

	return socket_get(fd, IPPROTO_TCP, TCP_INFO, &i, sizeof(i)) > 0 && !i.tcpi_rtt && !i.tcpi_options && !i.tcpi_bytes_acked && !i.tcpi_bytes_received;
}

void socket_lone_claim(struct fermata_desc *d, struct socket_state *s)
{
	int events = socket_poll(d->fd, POLLRDHUP, 0);

	if (events > 0 && events & POLLRDHUP && was_refused(d->fd)) {
		s->record.kind = SOCKET_CONNECTING;
		s->record.flags |= SOCKET_END_OF_FILE | (events & POLLERR ? SOCKET_ERROR : 0);
		return;
	}
	s->record.kind = events > 0 && events & POLLRDHUP ? SOCKET_ORPHAN : SOCKET_FRESH;
	if (s->record.kind == SOCKET_ORPHAN)
		s->record.flags |= SOCKET_END_OF_FILE | SOCKET_WRITE_SHUT | (events & POLLERR ? SOCKET_ERROR : 0);
}

/* Nobody has the other end: it is closed. What it has sent comes first. */
static int orphaned(struct fermata_desc *d, struct socket_state *s)
{
	struct tcp_info info;
	int r = socket_lone_let_in(d, s);

	if (!r)
		r = socket_tcp_info(d, &info);
	if (r)
		return r;
	s->record.kind = SOCKET_ORPHAN;
	s->record.flags |= SOCKET_END_OF_FILE;
	if (info.tcpi_state == TCP_CLOSE)
		socket_lone_claim(d, s);
	return FERMATA_DRAINED;
}

/* In the queue of a listener. */
static int not_accepted(struct fermata_desc *d, struct socket_state *s, const struct tcp_info *info)
{
	int events = socket_poll(d->fd, POLLRDHUP, 0);

	if (info->tcpi_bytes_sent)
		return socket_tcp_refuse(d, s, -EALREADY, "has sent data and waits to be accepted by its listener: try again");
	if (events > 0 && events & POLLRDHUP)
		s->record.flags |= SOCKET_READ_SHUT;
	return socket_pending_found(d, s);
}

static int outside(struct fermata_desc *d, struct socket_state *s)
{
	return socket_let_go(s) ? FERMATA_DRAINED :
				  socket_tcp_refuse(d, s, -EOPNOTSUPP, "leads out of the job: run the peer under the job too, close the connection before the checkpoint, or let it go (--external=error)");
}

static int without_foreign(struct fermata_desc *d, struct socket_state *s, const struct tcp_info *info)
{
	if (info->tcpi_state == TCP_ESTABLISHED && socket_far_has_listener(s))
		return socket_tcp_refuse(d, s, -EALREADY, "waits to be accepted by its listener on another host: try again");
	if (socket_let_go(s))
		return FERMATA_DRAINED;
	if (STATE(info->tcpi_state) & STATES_GOT_FIN)
		return socket_tcp_refuse(d, s, -EAGAIN, "leads to another host, where nobody of the job has its other end: it has been closed there, or leads out of the "
					     "job; close it before the checkpoint, or let it go (--external=error)");
	return outside(d, s);
}

int socket_lone_found(struct fermata_desc *d, struct socket_state *s, const struct tcp_info *info)
{
	struct socket_tcp_seen peer = { 0, 0 };
	int r;

	if (s->foreign)
		return without_foreign(d, s, info);
	r = socket_diag_tcp(&s->record.remote, &s->record.local, &peer);
	if (peer.ino)
		return s->elsewhere ? outside(d, s) : socket_tcp_ask_elsewhere(s);
	if (end_has_come(d->fd) || (!r && STATE(peer.state) & STATES_SENT_FIN)) /* in this order: a peer whose end has come in between is not there any more */
		return orphaned(d, s);
	if (!r && STATE(peer.state) & STATES_NOT_ACCEPTED)
		return not_accepted(d, s, info);
	return r == -ENOENT && end_comes_soon(d->fd) ? orphaned(d, s) : outside(d, s);
}
