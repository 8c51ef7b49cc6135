/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that have been made but not yet accepted: the client's end is a descriptor, the other waits in a listener's queue, where
 * nobody can look into it. No state of its own.
 *
 * Accepting it ourselves would take it away from the program, so it is left alone, and made again at restart: the client's socket
 * connects once more in REFILL, when the listeners of all processes are back, and waits in the queue as before. That is all
 * there is to it if the client is in the job and has sent nothing, but perhaps its end; else the checkpoint is refused, with a text that
 * says to try again: a server accepts sooner or later.
 *
 *   QUIESCE  listener: publishes its address
 *   round 0  client: publishes the address that it has connected to, asks for a listener there
 *	      listener with something queued: asks for clients
 *   round 1  client: there is a listener in the job
 *	      listener: has found as many clients as its queue holds
 *
 * Keys: a hash of the address, or, as a listener may listen on all addresses, of the port.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"

#define CONNECT_MS 5000

struct pending_key {
	char tag[7];  /* "socket/" */
	char kind[7]; /* "listen/" or "wait/" */
	uint64_t hash;
} PACKED;

struct pending_value {
	uint32_t pid;
	int32_t fd;
	struct socket_end end; /* IP: where it listens, or has connected to */
} PACKED;

static struct pending_key key_of(const char *kind, const struct socket_state *s, const struct socket_name *n)
{
	bool local = s->record.domain == AF_UNIX;
	struct pending_key k = { .hash = local ? 14695981039346656037u : 0 };
	uint32_t end = local ? n->length : 4; /* family and port, or the whole name */

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, kind, strlen(kind));
	for (uint32_t i = 2; i < end; i++)
		k.hash = (k.hash ^ n->bytes[i]) * 1099511628211u;
	return k;
}

static struct pending_value value_of(const struct fermata_desc *d, const struct socket_state *s, const struct socket_name *n)
{
	struct pending_value v = { .pid = fermata_pid(), .fd = d->fd };

	if (s->record.domain != AF_UNIX)
		v.end = socket_end_of(n);
	return v;
}

bool socket_end_reaches(const struct socket_end *to, const struct socket_end *at)
{
	static const uint8_t any4[16] = { [10] = 0xff, [11] = 0xff }, any6[16];

	return !memcmp(to->address, at->address, sizeof(at->address)) || !memcmp(at->address, any4, sizeof(any4)) ||
	       !memcmp(at->address, any6, sizeof(any6));
}

int socket_listening_claim(struct fermata_desc *d, struct socket_state *s)
{
	struct pending_key key = key_of("listen/", s, &s->record.local);
	struct pending_value value = value_of(d, s, &s->record.local);

	int r = fermata_publish(&key, sizeof(key), &value, sizeof(value));

	return r || s->record.domain == AF_UNIX ? r : socket_far_publish_port(s);
}

int socket_pending_found(struct fermata_desc *d, struct socket_state *s)
{
	struct pending_key wait = key_of("wait/", s, &s->record.remote), listen = key_of("listen/", s, &s->record.remote);
	struct pending_value value = value_of(d, s, &s->record.remote);
	int r = fermata_publish(&wait, sizeof(wait), &value, sizeof(value));

	s->record.kind = SOCKET_PENDING;
	if (!r)
		r = fermata_ask(&listen, sizeof(listen));
	return r ? r : FERMATA_DRAIN_MORE;
}

/* Two listeners of this process that ask for the same key get each answer twice. */
static bool seen_before(const struct pending_key *key, unsigned int index, const struct pending_value *v)
{
	const void *value;
	size_t len;

	for (unsigned int i = 0; i < index && (value = fermata_resolve(key, sizeof(*key), i, &len)); i++)
		if (len >= sizeof(*v) && !memcmp(value, v, sizeof(*v)))
			return true;
	return false;
}

/* Distinct values under @key that @s can have to do with, as listener or as client. */
static uint32_t count(const struct pending_key *key, const struct fermata_desc *d, const struct socket_state *s)
{
	bool listens = s->record.kind == SOCKET_LISTENING;
	struct pending_value own = value_of(d, s, listens ? &s->record.local : &s->record.remote), v;
	const void *value;
	uint32_t n = 0;
	size_t len;

	for (unsigned int i = 0; (value = fermata_resolve(key, sizeof(*key), i, &len)); i++) {
		if (len < sizeof(v))
			continue;
		memcpy(&v, value, sizeof(v));
		if (seen_before(key, i, &v))
			continue;
		if (s->record.domain == AF_UNIX || socket_end_reaches(listens ? &v.end : &own.end, listens ? &own.end : &v.end))
			n++;
	}
	return n;
}

static int drain_client(struct fermata_desc *d, struct socket_state *s)
{
	struct pending_key key = key_of("listen/", s, &s->record.remote);
	char text[120];

	if (count(&key, d, s))
		return FERMATA_DRAINED;
	socket_name_text(&s->record.remote, text, sizeof(text));
	if (socket_let_go(s))
		return FERMATA_DRAINED;
	return fermata_fail(-EOPNOTSUPP, "fd %d: its connection to %s leads out of the job: run the server under the job too, "
			    "close the connection before the checkpoint, or let it go (--external=error)", d->fd, text);
}

int socket_pending_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	struct pending_key key = key_of("wait/", s, &s->record.local);
	char text[120];
	uint32_t n;
	int r;

	if (s->record.kind == SOCKET_PENDING)
		return round == 1 ? drain_client(d, s) : FERMATA_DRAINED;
	if (!s->pending || round > 1)
		return FERMATA_DRAINED;
	if (round == 0) {
		r = fermata_ask(&key, sizeof(key));
		return r ? r : FERMATA_DRAIN_MORE;
	}
	n = count(&key, d, s);
	if (n == s->pending || fermata_option_external() == FERMATA_EXTERNAL_RECONNECT)
		return FERMATA_DRAINED;
	socket_name_text(&s->record.local, text, sizeof(text));
	return fermata_fail(-EAGAIN, "fd %d, listening on %s, has %u connections that are not accepted yet, %u of them from "
			    "processes of the job: try again when they are, or leave the others out (--external=reconnect-listen)", d->fd, text, s->pending, n);
}

static int shut_again(int fd, const struct socket_record *r)
{
	int err = 0;

	if (r->flags & SOCKET_READ_SHUT)
		err = (int)RAW2(SYS_shutdown, fd, SHUT_RD);
	if (!err && r->flags & SOCKET_WRITE_SHUT)
		err = (int)RAW2(SYS_shutdown, fd, SHUT_WR);
	return err;
}

int socket_pending_connect(struct fermata_desc *d, const struct socket_record *r)
{
	const struct timespec pause = { 0, SOCKET_TRY_NS };
	int err = socket_connect_from(d->fd, r->domain, &r->local, &r->remote);
	char text[120];

	for (int i = 0; i < SOCKET_TRIES && err == -EADDRNOTAVAIL; i++) { /* in TIME_WAIT: socket.h */
		RAW2(SYS_nanosleep, &pause, NULL);
		err = socket_connect(d->fd, &r->remote);
	}
	if (err == -EINPROGRESS) {
		socket_poll(d->fd, POLLOUT, CONNECT_MS);
		err = -socket_get_int(d->fd, SOL_SOCKET, SO_ERROR);
	}
	if (!err)
		err = shut_again(d->fd, r);
	if (!err)
		return 0;
	socket_name_text(&r->remote, text, sizeof(text));
	return fermata_fail(err, "fd %d cannot connect to %s again (errno %d)", d->fd, text, -err);
}
