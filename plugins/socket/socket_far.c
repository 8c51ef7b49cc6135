/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP connections between hosts of the job, or between parts of one that came back apart, at a checkpoint: of a far connection neither side can have a descriptor of the other. No state of its own.
 *
 * The ends find each other as those of one host do (socket_tcp.c), by names of the whole job. Such names has who is connected to an address that is not its own host's, and, as hosts
 * may have come back on one machine, whose peer is held by somebody here, but by nobody of its host. Only who is in one network has addresses in common with another: loopback, say.
 *
 * Roles. At a restart one end listens and the other connects (socket_far_restart.c). Both know here which: who listens must have its port for itself, or it would be in the way of the program's
 * listener, and of other connections at that port. So each end of a far connection, and each listener, publishes its address under its port. An end whose port others have does not listen; where both
 * could, or neither, the lower (host, pid, fd) does.
 *
 * What is under way. A sender waits until all is acknowledged, and the receiver acknowledges at once. Should the receiver's window be closed, it widens its receive buffer, as nobody can put back what
 * the sender has: from round 4 on, as long as that says so. What does not fit even then passes by itself when the program reads: -EAGAIN.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"

#define ROUND_STUCK 3
#define ROUND_LAST 24
#define ARRIVAL_MS 20

struct port_key {
	char tag[7];  /* "socket/" */
	char kind[5]; /* "port/" */
	uint16_t port;
} PACKED;

struct port_value {
	uint64_t ino;
	uint32_t host;
	uint32_t listens;
	struct socket_end at;
} PACKED;

struct far_peer {
	struct socket_peer peer;
	uint64_t network;
};

struct stuck_key { /* of the sender */
	char tag[7];	 /* "socket/" */
	char kind[10]; /* "far-stuck/" */
	struct socket_end from, to;
} PACKED;

static struct port_key port_key_of(const struct socket_end *e)
{
	struct port_key k = { .port = e->port };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "port/", sizeof(k.kind));
	return k;
}

static struct stuck_key stuck_key_of(const struct socket_name *from, const struct socket_name *to)
{
	struct stuck_key k = { .from = socket_end_of(from), .to = socket_end_of(to) };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "far-stuck/", sizeof(k.kind));
	return k;
}

int socket_far_publish_port(const struct socket_state *s)
{
	struct socket_end at = socket_end_of(&s->record.local);
	struct port_key key = port_key_of(&at);
	struct port_value value = { s->record.ino, fermata_host(), s->record.kind == SOCKET_LISTENING, at };

	return fermata_job_publish(&key, sizeof(key), &value, sizeof(value));
}

int socket_far_claim(struct socket_state *s, const void *own_key, const void *other_key, size_t length)
{
	struct socket_end local = socket_end_of(&s->record.local), remote = socket_end_of(&s->record.remote);
	struct port_key here = port_key_of(&local), there = port_key_of(&remote);
	struct far_peer self = { { fermata_pid(), s->record.maker_fd, s->record.domain, fermata_host(), s->record.ino, 0, 0, 0 }, socket_network() };
	int r = fermata_job_publish(own_key, length, &self, sizeof(self));

	if (!r)
		r = socket_far_publish_port(s);
	if (!r)
		r = fermata_job_ask(other_key, length);
	if (!r)
		r = fermata_job_ask(&here, sizeof(here));
	return r ? r : fermata_job_ask(&there, sizeof(there));
}

int socket_far_ask_listener(struct socket_state *s)
{
	struct socket_end remote = socket_end_of(&s->record.remote);
	struct port_key there = port_key_of(&remote);

	return fermata_job_ask(&there, sizeof(there));
}

bool socket_far_resolve(const struct socket_state *s, const void *key, size_t length, struct socket_peer *ret)
{
	struct far_peer p;
	const void *value;
	bool found = false;
	size_t len;

	for (unsigned int i = 0; (value = fermata_job_resolve(key, length, i, &len)); i++) {
		if (len < sizeof(p))
			continue;
		memcpy(&p, value, sizeof(p));
		if (p.peer.host == fermata_host() || (p.network == socket_network()) == s->foreign)
			continue;
		if (!found || p.peer.pid < ret->pid || (p.peer.pid == ret->pid && p.peer.fd < ret->fd))
			*ret = p.peer;
		found = true;
	}
	return found;
}

/* Somebody else has the port of @end, or listens at it. @only_listeners: the latter. */
static bool is_shared(const struct socket_end *end, uint32_t host, uint64_t ino, bool only_listeners)
{
	struct port_key key = port_key_of(end);
	struct port_value v;
	const void *value;
	size_t len;

	for (unsigned int i = 0; (value = fermata_job_resolve(&key, sizeof(key), i, &len)); i++) {
		if (len < sizeof(v))
			continue;
		memcpy(&v, value, sizeof(v));
		if ((v.host != host || v.ino != ino) && (v.listens || !only_listeners) && socket_end_reaches(end, &v.at))
			return true;
	}
	return false;
}

bool socket_far_has_listener(const struct socket_state *s)
{
	struct socket_end remote = socket_end_of(&s->record.remote);

	return is_shared(&remote, fermata_host(), s->record.ino, true);
}

static bool is_lower(const struct socket_state *s, const struct socket_peer *p)
{
	if (fermata_host() != p->host)
		return fermata_host() < p->host;
	return fermata_pid() < p->pid || (fermata_pid() == p->pid && s->record.maker_fd < p->fd);
}

void socket_far_found(struct socket_state *s, const struct socket_peer *peer)
{
	struct socket_record *r = &s->record;
	struct socket_end local = socket_end_of(&r->local), remote = socket_end_of(&r->remote);
	bool here = is_shared(&local, fermata_host(), r->ino, false), there = is_shared(&remote, peer->host, peer->ino, false);

	s->peer = *peer;
	r->peer_pid = peer->pid;
	r->peer_fd = peer->fd;
	r->peer_domain = peer->domain;
	r->peer_ino = peer->ino;
	r->flags |= SOCKET_FAR;
	if (here == there ? is_lower(s, peer) : there)
		r->flags |= SOCKET_FAR_LISTENS;
}

/* ---- what is under way ---- */

static bool arrives_soon(int fd)
{
	const struct timespec step = { 0, 1000000 };

	for (int i = 0; i < ARRIVAL_MS; i++) {
		if (socket_queued(fd, SIOCOUTQ) == 0)
			return true;
		RAW2(SYS_nanosleep, &step, NULL);
	}
	return false;
}

static int receive_more(const struct fermata_desc *d, const struct socket_state *s, unsigned int round)
{
	struct stuck_key key = stuck_key_of(&s->record.remote, &s->record.local);

	socket_set_int(d->fd, IPPROTO_TCP, TCP_QUICKACK, 1);
	if (round >= ROUND_STUCK && round < ROUND_LAST)
		return fermata_job_ask(&key, sizeof(key));
	return 0;
}

static void widen(const struct fermata_desc *d, struct socket_state *s)
{
	struct stuck_key key = stuck_key_of(&s->record.remote, &s->record.local);
	size_t len;

	if (!fermata_job_resolve(&key, sizeof(key), 0, &len))
		return;
	socket_queue_widen(d, s);
}

int socket_far_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	struct stuck_key key = stuck_key_of(&s->record.local, &s->record.remote);
	char text[72];
	int r = receive_more(d, s, round);

	if (round > ROUND_STUCK)
		widen(d, s);
	if (r || arrives_soon(d->fd))
		return r;
	if (round >= ROUND_LAST) {
		socket_name_text(&s->record.remote, text, sizeof(text));
		return fermata_fail(-EALREADY, "fd %d: more is under way to %s, on another host, than its receiver takes: try again when that has read",
				    d->fd, text);
	}
	if (round >= ROUND_STUCK)
		r = fermata_job_publish(&key, sizeof(key), "", 1);
	return r ? r : FERMATA_DRAIN_MORE;
}
