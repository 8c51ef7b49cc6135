/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unix datagram sockets. Owns, in a restart, the list of the sockets that may not send any more.
 *
 * Whoever knows a socket's name may send to it, so what matters is each one's own queue: it is looked at by who leads the socket, and at
 * a restart filled before the program runs. How two sockets are connected decides how they come back:
 *
 *   FRESH      not connected, perhaps bound
 *   NAMED      to the one with that name, here or, as a log's, outside of the job. Connects in REFILL
 *   CONNECTED  with each other, where one has no name: made by socketpair(2), so made again by it (socket.c)
 *   ORPHAN     the other one is closed
 *
 * A connected socket takes messages from its peer only, and any number of them. So those that others sent before it was connected go
 * first, then it connects, then come its peer's.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

struct mute { /* to be shut for sending when everybody's queue is full again: what it has sent before goes through it */
	struct mute *next;
	int fd; /* a copy */
};
static struct mute *mutes;

void socket_datagrams_end(void)
{
	while (mutes) {
		struct mute *m = mutes;

		mutes = m->next;
		RAW2(SYS_shutdown, m->fd, SHUT_WR);
		raw_close(m->fd);
		fermata_free(m);
	}
}

static bool is_named(const struct socket_name *n)
{
	return n->length > 2;
}

int socket_datagram_peer(struct fermata_desc *d, struct socket_state *s, const struct socket_peer *peer)
{
	struct socket_record *r = &s->record;

	if (!peer) {
		r->kind = SOCKET_NAMED;
		return is_named(&r->remote) ? FERMATA_DRAINED : FERMATA_FD_OUTSIDE;
	}
	if (peer->peer_ino && peer->peer_ino != r->ino)
		return fermata_fail(-EOPNOTSUPP, "fd %d is connected to a unix datagram socket (fd %d of process %u) that is connected to a "
				    "third one, which is not supported", d->fd, peer->fd, peer->pid);
	if (peer->peer_ino && !(is_named(&r->local) && is_named(&r->remote))) {
		socket_peer_found(d, s, peer);
		return FERMATA_DRAINED;
	}
	if (!is_named(&r->remote))
		return fermata_fail(-EOPNOTSUPP, "fd %d is connected to a unix datagram socket without a name that is not connected to it, "
				    "which is not supported", d->fd);
	r->kind = SOCKET_NAMED;
	return FERMATA_DRAINED;
}

/* What could not be put back, because who sent it has no way to this socket. */
int socket_datagram_check(int fd, const struct socket_record *r, const struct socket_messages *all)
{
	const struct socket_message *m;
	bool foreign = false;

	if (all->length && r->kind == SOCKET_FRESH && !is_named(&r->local))
		return fermata_fail(-EOPNOTSUPP, "fd %d has messages in its queue, but neither a name nor a peer, which is not supported: "
				    "receive them before the checkpoint", fd);
	for (size_t at = 0; (m = socket_message_next(all->bytes, all->length, &at));)
		foreign |= !socket_message_is_from(m, &r->remote);
	if (foreign && (r->kind == SOCKET_CONNECTED || r->kind == SOCKET_ORPHAN))
		return fermata_fail(-EAGAIN, "fd %d has messages in its queue that are not from its peer: try again when they have been read", fd);
	return 0;
}

/* Where in @content the messages begin that the peer sends, itself. */
static size_t last_foreign(const struct socket_record *r, const char *content)
{
	const struct socket_message *m;
	size_t end = 0;

	for (size_t at = 0; (m = socket_message_next(content, r->content_length, &at));)
		if (!m->sender_pid || !socket_message_is_from(m, &r->remote))
			end = at;
	return end;
}

static int put_range(const struct fermata_desc *d, const struct socket_record *r, const char *content, size_t from, size_t to)
{
	const struct socket_message *m;
	int err = 0;

	while (!err && from < to) {
		m = socket_message_next(content, to, &from);
		err = m ? socket_message_put_from_sender(d->fd, &r->local, m) : -EBADMSG;
	}
	return err;
}

int socket_datagram_refill(struct fermata_desc *d, const struct socket_record *r, const char *content)
{
	size_t foreign = r->kind == SOCKET_NAMED ? last_foreign(r, content) : r->content_length;
	int err = put_range(d, r, content, 0, foreign);
	char text[120];

	if (err || r->kind != SOCKET_NAMED)
		return err;
	err = socket_connect(d->fd, &r->remote);
	if (err) {
		socket_name_text(&r->remote, text, sizeof(text));
		log_warn("fd %d, a unix datagram socket, is not connected any more: %s cannot be reached (errno %d)", d->fd, text, -err);
	}
	return put_range(d, r, content, foreign, r->content_length);
}

/* The flags of shutdown(2), after all has been put back here. */
int socket_datagram_shut(int fd, const struct socket_record *r)
{
	struct mute *m;

	if (r->flags & SOCKET_READ_SHUT)
		RAW2(SYS_shutdown, fd, SHUT_RD);
	if (!(r->flags & SOCKET_WRITE_SHUT))
		return 0;
	m = fermata_alloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = (struct mute){ mutes, raw_fcntl(fd, F_DUPFD_CLOEXEC, FDPASS_PARK_BASE) };
	mutes = m;
	return m->fd < 0 ? m->fd : 0;
}
