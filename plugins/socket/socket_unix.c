/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unix sockets: what one is and who its peer is. No state of its own. The kernel's diagnostics name the peer's inode; each
 * connected socket is published under its own, and each datagram one, which others may be connected to. Nothing is ever under way: what is
 * sent lies in the receiver's queue at once. That is copied in round 0, by who leads the socket; round 1 knows what was asked about it.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>

#include "base/macro.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define SHUT_RECEIVE 1u
#define SHUT_SEND 2u

struct unix_key {
	char tag[7];  /* "socket/" */
	char kind[5]; /* "unix/" */
	uint64_t ino;
} PACKED;

static struct unix_key key_of(uint64_t ino)
{
	struct unix_key k = { .ino = ino };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "unix/", sizeof(k.kind));
	return k;
}

static int publish(const struct socket_state *s)
{
	struct unix_key own = key_of(s->record.ino);
	struct socket_peer self = { fermata_pid(), s->record.maker_fd, s->record.domain, fermata_host(), s->record.ino, s->record.peer_ino, 0, 0 };
	int r = fermata_publish(&own, sizeof(own), &self, sizeof(self));

	if (!r && s->record.type == SOCK_DGRAM && s->record.local.length > 2)
		r = socket_name_publish(s->record.maker_fd, &s->record.local);
	return r;
}

static int claim_connected(struct socket_state *s, const struct socket_unix_info *info)
{
	struct unix_key other = key_of(info->peer_ino);
	int r;

	s->record.kind = SOCKET_CONNECTED;
	s->record.peer_ino = info->peer_ino;
	r = publish(s);
	if (r || !info->peer_ino)
		return r;
	return fermata_ask(&other, sizeof(other));
}

static int claim_alone(const struct fermata_desc *d, struct socket_state *s, const struct socket_unix_info *info)
{
	int r;

	s->record.kind = info->shutdown && s->record.type != SOCK_DGRAM ? SOCKET_ORPHAN : SOCKET_FRESH;
	r = s->record.kind == SOCKET_FRESH ? socket_path_note(d, &s->record, info->path_ino) : 0;
	return !r && s->record.type == SOCK_DGRAM ? publish(s) : r;
}

int socket_unix_claim(struct fermata_desc *d, struct socket_state *s)
{
	struct socket_unix_info info;
	int r = socket_diag_unix((uint32_t)s->record.ino, &info);

	if (r)
		return fermata_fail(r, "fd %d: the peer of a unix socket cannot be told here: no socket diagnostics (errno %d)",
				    d->fd, -r);
	if (info.shutdown & SHUT_RECEIVE)
		s->record.flags |= SOCKET_READ_SHUT;
	if (info.shutdown & SHUT_SEND)
		s->record.flags |= SOCKET_WRITE_SHUT;
	if (socket_get_int(d->fd, SOL_SOCKET, SO_ACCEPTCONN) > 0) {
		s->record.kind = SOCKET_LISTENING;
		s->record.backlog = info.backlog;
		s->pending = info.pending;
		r = socket_path_note(d, &s->record, info.path_ino);
		return r ? r : socket_listening_claim(d, s);
	}
	if (!info.has_peer)
		return claim_alone(d, s, &info);
	socket_name_get(d->fd, true, &s->record.remote);
	r = s->record.type == SOCK_DGRAM ? socket_path_note(d, &s->record, info.path_ino) : 0; /* of others the listener has it */
	return r ? r : claim_connected(s, &info);
}

static int without_inode(struct fermata_desc *d, struct socket_state *s)
{
	const uint32_t both = SOCKET_READ_SHUT | SOCKET_WRITE_SHUT;
	int events;

	s->record.kind = SOCKET_ORPHAN;
	if (s->record.type == SOCK_DGRAM)
		return FERMATA_DRAINED;
	if ((s->record.flags & both) != both) {
		if (!(s->record.flags & SOCKET_READ_SHUT) && socket_queued(d->fd, SIOCOUTQ) == 0)
			return socket_pending_found(d, s);
		return fermata_fail(-EALREADY, "fd %d: its unix connection has sent data and waits to be accepted: try again",
				    d->fd);
	}
	events = socket_poll(d->fd, 0, 0);
	if (events > 0 && events & POLLERR)
		s->record.flags |= SOCKET_ERROR;
	return FERMATA_DRAINED;
}

/* Its other side is gone after a restart. */
static void lose(struct socket_state *s)
{
	s->record.kind = SOCKET_ORPHAN;
	s->record.flags |= SOCKET_END_OF_FILE | SOCKET_ERROR | SOCKET_EXTERNAL;
	s->record.remote.length = 0; /* somebody else's name */
}

/* Of libc: SSSD, winbind, nscd, nslcd. Whoever has looked up a user may have a connection, which it knows nothing of: its library keeps it, and makes another when it is lost. */
static bool is_name_service(const struct socket_name *n)
{
	static const char *const places[] = { "/var/lib/sss/pipes/", "/run/samba/winbindd/", "/var/run/samba/winbindd/", "/run/nscd/", "/var/run/nscd/", "/run/nslcd/", "/var/run/nslcd/" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (n->length > 2 + strlen(places[i]) && !memcmp(n->bytes + 2, places[i], strlen(places[i])))
			return true;
	return false;
}

static int find_peer(struct fermata_desc *d, struct socket_state *s)
{
	struct unix_key other = key_of(s->record.peer_ino);
	bool datagram = s->record.type == SOCK_DGRAM, found;
	struct socket_peer peer;

	if (s->record.kind != SOCKET_CONNECTED)
		return FERMATA_DRAINED;
	if (!s->record.peer_ino)
		return without_inode(d, s);
	found = socket_peer_resolve(false, &other, sizeof(other), &peer);
	if (datagram)
		return socket_datagram_peer(d, s, found ? &peer : NULL);
	if (!found && is_name_service(&s->record.remote)) {
		lose(s);
		return FERMATA_DRAINED;
	}
	if (!found)
		return FERMATA_FD_OUTSIDE;
	socket_peer_found(d, s, &peer);
	return FERMATA_DRAINED;
}

static int look(struct fermata_desc *d, struct socket_state *s)
{
	const struct socket_record *rec = &s->record;
	int r = socket_peek_unix(d->fd, rec->type, rec->ino, &s->messages);

	if (!r)
		r = socket_flight_assign(d->fd, rec->ino, &s->messages);
	if (!r && rec->type == SOCK_DGRAM)
		r = socket_datagram_check(d->fd, rec, &s->messages);
	return r ? r : socket_messages_ask(&s->messages);
}

int socket_let_go(struct socket_state *s)
{
	if (fermata_option_external() == FERMATA_EXTERNAL_FAIL)
		return 0;
	lose(s);
	return 1;
}

int socket_unix_let_go(struct fermata_desc *d)
{
	struct socket_state *s = d->priv;
	char text[120];

	if (s->record.type != SOCK_DGRAM && socket_let_go(s))
		return look(d, s);
	socket_name_text(&s->record.local, text, sizeof(text));
	return fermata_fail(-EOPNOTSUPP, "fd %d, a datagram socket %s, is connected with one without a name out of the job, which is not supported: close it before the checkpoint", d->fd, text);
}

int socket_unix_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	bool may_hold;
	int r;

	if (s->record.kind == SOCKET_LISTENING || s->record.kind == SOCKET_PENDING)
		return socket_pending_drain(d, s, round);
	if (round == 1)
		return socket_messages_answer(d->fd, &s->messages);
	r = round ? FERMATA_DRAINED : find_peer(d, s);
	may_hold = s->record.kind == SOCKET_CONNECTED || s->record.kind == SOCKET_ORPHAN || s->record.type == SOCK_DGRAM;
	return r || round || !may_hold ? r : look(d, s);
}
