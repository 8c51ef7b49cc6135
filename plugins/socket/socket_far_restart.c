/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP connections between hosts of the job, or parts of one, are made again over the network of this life (socket_far.c says which end listens):
 *
 *   RECREATE   who listens does so at its old address and port, if this machine has them, and else at any; publishes where, and a token. Who connects takes its old address
 *   RECONNECT  first all that connect do so, and send the token with how much they have unread; nobody waits for anybody in that. Then those who listen accept: it is there
 *   REFILL     each end sends what it had unread to the other, all connections of a process at once; when it has come, it goes back the way that it went in the first life, and lies unread again.
 *              An end of file follows
 *
 * So an end has the name that it had where it comes back on a machine that has that address and the port is free, and else a new one of this life, as connections within a host (socket_pair.c);
 * of loopback where both are on one machine. Whoever dials the port without the token is turned away.
 *
 * Owns the list of these ends, from restore to the end of the restart.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/sys.h"
#include "plugins/socket/socket_far.h"

#define BIND_TRIES 20

struct far_key {
	char tag[7];  /* "socket/" */
	char kind[4]; /* "far/" */
	struct socket_end a, b; /* who listens, who connects */
	uint64_t ino_a, ino_b;
} PACKED;

struct far_ends socket_far_list;

bool socket_is_far(const struct socket_record *r)
{
	if (!socket_is_tcp(r) || r->kind != SOCKET_CONNECTED)
		return false;
	return r->flags & SOCKET_FAR || (fermata_in_capsule() && RAW2(SYS_kill, r->peer_pid, 0) == -ESRCH);
}

struct far_end *socket_far_find(const struct fermata_desc *d)
{
	for (size_t i = 0; i < socket_far_list.count; i++)
		if (socket_far_list.ends[i].number == d->fd)
			return &socket_far_list.ends[i];
	return NULL;
}

static struct far_end *add(void)
{
	struct far_end *more;

	if (socket_far_list.count == socket_far_list.room) {
		more = fermata_alloc((socket_far_list.room * 2 + 8) * sizeof(*more));
		if (!more)
			return NULL;
		if (socket_far_list.count)
			memcpy(more, socket_far_list.ends, socket_far_list.count * sizeof(*more));
		fermata_free(socket_far_list.ends);
		socket_far_list.ends = more;
		socket_far_list.room = socket_far_list.room * 2 + 8;
	}
	more = &socket_far_list.ends[socket_far_list.count++];
	memset(more, 0, sizeof(*more));
	return more;
}

static struct far_key key_of(const struct far_end *e)
{
	const struct socket_record *r = e->r;
	struct far_key k = { .a = socket_end_of(e->listens ? &r->local : &r->remote), .b = socket_end_of(e->listens ? &r->remote : &r->local),
			     .ino_a = e->listens ? r->ino : r->peer_ino, .ino_b = e->listens ? r->peer_ino : r->ino };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "far/", sizeof(k.kind));
	return k;
}

/* ---- RECREATE ---- */

int socket_far_open(const struct far_end *e)
{
	int fd = (int)RAW3(SYS_socket, e->r->domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0)
		socket_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	return fd;
}

static int bind_patiently(int fd, const struct far_end *e)
{
	const struct timespec pause = { 0, SOCKET_TRY_NS };
	int r;

	for (int i = 0; (r = e->listens ? socket_bind(fd, &e->r->local) : socket_bind_connecting(fd, e->r->domain, &e->r->local)) == -EADDRINUSE &&
			i < BIND_TRIES; i++)
		RAW2(SYS_nanosleep, &pause, NULL);
	return r;
}

/* 1: at its old address, 0: at all, or -errno. That nobody else wants the port is known only of an end whose connection was between hosts. */
static int bind_listener(int fd, const struct far_end *e)
{
	bool own_port = e->r->flags & SOCKET_FAR;
	struct socket_name at = e->r->local;

	if (!socket_is_loopback(&at)) {
		if (own_port && !bind_patiently(fd, e))
			return 1;
		memset(at.bytes + 2, 0, 2);
		if (!socket_bind(fd, &at))
			return 1;
	}
	at = e->r->local;
	memset(at.bytes + 4, 0, at.length - 4);
	if (own_port && !socket_bind(fd, &at))
		return 0;
	memset(at.bytes + 2, 0, 2);
	return socket_bind(fd, &at);
}

/* Where others reach it. */
static int describe(int fd, bool bound, const struct far_end *e, struct far_value *ret)
{
	struct socket_name name;
	struct socket_end at;
	int r = socket_name_get(fd, false, &name);

	memset(ret, 0, sizeof(*ret));
	at = socket_end_of(&name);
	memcpy(ret->token, e->own.token, sizeof(ret->token));
	ret->network = socket_network();
	ret->port = at.port;
	ret->bound = bound;
	ret->count = 1;
	memcpy(ret->addresses[0], at.address, sizeof(at.address));
	if (!r && !bound)
		ret->count = socket_addresses(e->r->domain == AF_INET6, ret->addresses);
	return r;
}

static int begin_listening(struct far_end *e)
{
	struct far_key key = key_of(e);
	struct far_value value;
	int r = socket_far_open(e), bound;

	e->fd = r;
	if (r < 0)
		return r;
	bound = bind_listener(e->fd, e);
	r = bound < 0 ? bound : (int)RAW2(SYS_listen, e->fd, 8);
	if (r >= 0)
		r = (int)RAW3(SYS_getrandom, e->own.token, sizeof(e->own.token), 0);
	if (r >= 0)
		r = describe(e->fd, bound == 1, e, &value);
	if (r >= 0)
		r = fermata_job_publish(&key, sizeof(key), &value, sizeof(value));
	if (r >= 0)
		r = e->fd = fdpass_park(e->fd);
	return r;
}

static int begin_connecting(struct far_end *e)
{
	struct far_key key = key_of(e);

	e->fd = socket_far_open(e);
	if (e->fd < 0)
		return e->fd;
	bind_patiently(e->fd, e); /* else any will do */
	e->fd = fdpass_park(e->fd);
	return e->fd < 0 ? e->fd : fermata_job_ask(&key, sizeof(key));
}

int socket_far_restore(const struct fermata_desc *d, const struct socket_record *r, const char *content)
{
	struct far_end *e = add();
	int err;

	if (!e)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	e->r = r;
	e->content = content;
	e->number = d->fd;
	e->listens = r->flags & SOCKET_FAR ? r->flags & SOCKET_FAR_LISTENS : r->maker_pid == fermata_pid() && r->maker_fd == d->fd;
	e->own.length = r->content_length;
	e->own.shut = (r->flags & SOCKET_END_OF_FILE) != 0;
	err = e->listens ? begin_listening(e) : begin_connecting(e);
	return err < 0 ? fermata_fail(err, "fd %d: its connection to another host cannot be made again (errno %d)", d->fd, -err) : FERMATA_FD_LATER;
}

const struct far_value *socket_far_value(const struct far_end *e)
{
	struct far_key key = key_of(e);
	size_t len;
	const void *value = fermata_job_resolve(&key, sizeof(key), 0, &len);

	return value && len == sizeof(struct far_value) ? value : NULL;
}

void socket_far_end(void)
{
	fermata_free(socket_far_list.ends);
	socket_far_list.ends = NULL;
	socket_far_list.count = socket_far_list.room = 0;
}
