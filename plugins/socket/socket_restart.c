/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order in which sockets come back. No state but in priv.
 *
 *   RECREATE   of a connection's two ends the maker (the lower (pid, fd)) makes both (socket_pair.c), keeps its own, parks the
 *              other and publishes its number
 *   RECONNECT  the peer takes the parked end by pidfd_getfd. Listeners and unconnected sockets come back: now, since a
 *              connection made at a listener's port needs that port for a moment
 *   REFILL     each end writes what it had queued into its peer's end, of which it holds a copy for that: the maker has the
 *              parked one, the other takes the maker's. An end of file follows the content in the same way. Then options.
 *
 * Connections of TCP to another host, or another part of this one, have their own way in the same phases: socket_far_restart.c.
 *
 * After REFILL only the program's own descriptors are left: ends of file come when the program closes.
 *
 * Credentials: to the kernel the maker is at both ends of a unix connection; SO_PEERCRED tells the program what it told before (base/peer_link.h).
 */
#include <errno.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define BIND_TRIES 40

struct end_key {
	char tag[7];  /* "socket/" */
	char kind[4]; /* "end/" */
	uint32_t maker_pid;
	int32_t maker_fd;
} PACKED;

struct socket_restart { /* priv, from restore to refill */
	struct socket_record record; /* its names as they are now */
	int parked; /* the maker: the peer's end; else -EBADF */
	bool far;   /* the peer is on another host, or in another part: socket_far_restart.c */
};

struct socket_view { /* a record, taken apart */
	const struct socket_record *r;
	const struct socket_option *options;
	const char *content;
};

static bool is_bound(const struct socket_record *r)
{
	return socket_is_inet(r->domain) ? r->local.length > 4 && (r->local.bytes[2] || r->local.bytes[3]) : r->local.length > 2;
}

static int view(const struct fermata_desc *d, const void *record, size_t len, struct socket_view *ret)
{
	const struct socket_restart *state = d->priv;
	const struct socket_record *r = record;

	memset(ret, 0, sizeof(*ret));
	if (len < sizeof(*r) || (len - sizeof(*r)) / sizeof(*ret->options) < r->option_count ||
	    len - sizeof(*r) - r->option_count * sizeof(*ret->options) < r->content_length)
		return fermata_fail(-EBADMSG, "fd %d: the record of its socket is cut", d->fd);
	ret->r = &state->record;
	ret->options = (const void *)(r + 1);
	ret->content = (const char *)(ret->options + r->option_count);
	return 0;
}

static struct end_key end_key_of(const struct socket_record *r)
{
	struct end_key k = { .maker_pid = r->maker_pid, .maker_fd = r->maker_fd };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "end/", sizeof(k.kind));
	return k;
}

static int address_fault(const struct fermata_desc *d, const struct socket_record *r, int err)
{
	char text[120];

	socket_name_text(&r->local, text, sizeof(text));
	return fermata_fail(err, err == -EADDRINUSE ? "fd %d: %s is in use (errno %d): end the program that has it; if another host of the job has it, each needs a machine of its own (--hosts)" :
						      "fd %d: %s cannot be bound to (errno %d)", d->fd, text, -err);
}

static int bind_again(int fd, const struct fermata_desc *d, const struct socket_record *r)
{
	const struct timespec pause = { 0, 5000000 };
	bool is_path = r->domain == AF_UNIX && r->local.bytes[2];
	int err;

	if (is_path)
		socket_path_prepare(r);
	for (int i = 0; (err = socket_bind(fd, &r->local)) == -EADDRINUSE && i < BIND_TRIES; i++)
		RAW2(SYS_nanosleep, &pause, NULL); /* the last of the killed job's connections may still be on their way out */
	if (err)
		return address_fault(d, r, err);
	return is_path ? socket_path_bound(r) : 0;
}

/* A pair of unnamed datagram sockets, one or both of which were bound later. */
static int bind_datagram(int fd, const struct fermata_desc *d, const struct socket_record *r)
{
	return socket_is_unix_datagram(r) && is_bound(r) ? bind_again(fd, d, r) : 0;
}

/* The other end is kept for what it has sent, which in REFILL comes back with its descriptors. */
static int orphan_unix(const struct fermata_desc *d, const struct socket_view *v, const int ends[2])
{
	struct socket_restart *state = d->priv;
	int r = bind_datagram(ends[0], d, v->r);

	if (!r && v->r->type == SOCK_DGRAM && v->r->remote.length > 2 && socket_bind(ends[1], &v->r->remote))
		log_warn("fd %d: the name of its peer, which is gone, cannot be had", d->fd);
	state->parked = fdpass_park(ends[1]);
	if (!r && state->parked < 0)
		r = fermata_fail(state->parked, "fd %d: no descriptor is free for its peer (errno %d)", d->fd, -state->parked);
	if (r)
		raw_close(ends[0]);
	return r ? r : ends[0];
}

static int refill_orphan(struct fermata_desc *d, const struct socket_view *v)
{
	struct socket_restart *state = d->priv;
	int r = socket_queue_put(d->fd, state->parked, d->fd, v->r, v->content);

	if (v->r->flags & SOCKET_ERROR) /* closing with something unread reports a reset */
		RAW6(SYS_sendto, d->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	raw_close(state->parked);
	state->parked = -EBADF;
	if (v->r->type == SOCK_DGRAM)
		socket_path_clear(&v->r->remote);
	return r;
}

/* Its peer is gone: with TCP, all happens here and now. */
static int restore_orphan(const struct fermata_desc *d, const struct socket_view *v)
{
	const struct linger reset = { 1, 0 };
	int ends[2], r = socket_pair_make(d->fd, v->r, ends);

	if (r)
		return r;
	if (!socket_is_tcp(v->r))
		return orphan_unix(d, v, ends);
	r = socket_queue_put(d->fd, ends[1], ends[0], v->r, v->content);
	if (v->r->flags & SOCKET_ERROR)
		socket_set(ends[1], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	raw_close(ends[1]);
	if (r)
		raw_close(ends[0]);
	return r ? r : ends[0];
}

static int restore_maker(struct fermata_desc *d, const struct socket_view *v)
{
	struct end_key key = end_key_of(v->r);
	struct socket_restart *state = d->priv;
	int ends[2], r = socket_pair_make(d->fd, v->r, ends);
	int32_t parked;

	if (r)
		return r;
	parked = fdpass_park(ends[1]);
	if (parked < 0)
		r = fermata_fail(parked, "fd %d: no descriptor is free for its peer (errno %d)", d->fd, -parked);
	state->parked = parked;
	if (!r)
		r = bind_datagram(ends[0], d, v->r);
	if (!r)
		r = fermata_publish(&key, sizeof(key), &parked, sizeof(parked));
	if (r)
		raw_close(ends[0]);
	return r ? r : ends[0];
}

static int make_socket(const struct fermata_desc *d, const struct socket_view *v)
{
	int fd = (int)RAW3(SYS_socket, v->r->domain, v->r->type | SOCK_CLOEXEC, v->r->protocol), err;

	if (fd < 0)
		return fermata_fail(fd, "fd %d: no new socket of family %d (errno %d)", d->fd, v->r->domain, -fd);
	if (socket_is_tcp(v->r))
		socket_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	err = socket_options_restore(fd, d->fd, v->options, v->r->option_count, true);
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

static int begin(struct fermata_desc *d, const void *record, size_t len)
{
	struct socket_restart *state = fermata_alloc(sizeof(*state));
	int r;

	if (!state)
		return -ENOMEM;
	d->priv = state;
	state->parked = -EBADF;
	memcpy(&state->record, record, len < sizeof(state->record) ? len : sizeof(state->record));
	r = socket_name_move(&state->record.local);
	return r ? r : socket_name_move(&state->record.remote);
}

int socket_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	struct socket_restart *state;
	struct socket_view v;
	struct end_key key;
	int r = begin(d, record, len);

	if (!r)
		r = view(d, record, len, &v);
	if (r)
		return r;
	state = d->priv;
	if (v.r->kind == SOCKET_ORPHAN)
		return restore_orphan(d, &v);
	if (v.r->kind == SOCKET_PENDING || v.r->kind == SOCKET_CONNECTING) /* connects in REFILL, or later */
		return make_socket(d, &v);
	if (v.r->kind != SOCKET_CONNECTED)
		return FERMATA_FD_LATER;
	state->far = socket_is_far(v.r);
	if (state->far)
		return socket_far_restore(d, v.r, v.content);
	if (v.r->maker_pid == fermata_pid() && v.r->maker_fd == d->fd)
		return restore_maker(d, &v);
	key = end_key_of(v.r);
	r = fermata_ask(&key, sizeof(key));
	return r ? r : FERMATA_FD_LATER;
}

static int take_end(const struct fermata_desc *d, const struct socket_record *r)
{
	struct end_key key = end_key_of(r);
	int32_t parked;
	size_t len;
	int err;
	const void *value = fermata_resolve(&key, sizeof(key), 0, &len);
	int fd;

	if (!value || len < sizeof(parked))
		return fermata_fail(-ENOTCONN, "fd %d: its peer, fd %d of process %u, has not come back", d->fd, r->peer_fd,
				    r->peer_pid);
	memcpy(&parked, value, sizeof(parked));
	fd = fdpass_take((int)r->maker_pid, parked);
	if (fd == -ESRCH)
		return fermata_fail(-EOPNOTSUPP, "fd %d is connected to process %u, which is of another part (--part): both have to be of one", d->fd,
				    r->peer_pid);
	if (fd < 0)
		return fermata_fail(fd, "fd %d cannot be taken from process %u: pidfd_getfd is refused (errno %d)", d->fd,
				    r->maker_pid, -fd);
	err = bind_datagram(fd, d, r);
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

/* Two sockets that may take one address over from another both bind to it (SO_REUSEADDR); only one of them then listens there. */
static int listen_again(int fd, const struct fermata_desc *d, const struct socket_record *r)
{
	int err = (int)RAW2(SYS_listen, fd, r->backlog);

	return err ? address_fault(d, r, err) : 0;
}

static int make_unconnected(const struct fermata_desc *d, const struct socket_view *v)
{
	int fd = make_socket(d, v), err = 0;

	if (fd < 0)
		return fd;
	if (v->r->domain == AF_NETLINK)
		err = socket_netlink_bind(fd, d->fd, v->r);
	else if (is_bound(v->r))
		err = bind_again(fd, d, v->r);
	if (!err && socket_is_udp(v->r) && v->r->kind == SOCKET_NAMED)
		socket_udp_connect(fd, d->fd, v->r);
	if (!err && v->r->kind == SOCKET_LISTENING)
		err = listen_again(fd, d, v->r);
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

int socket_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	const struct socket_restart *state = d->priv;
	struct socket_view v;
	int r = view(d, record, len, &v);

	if (r)
		return r;
	if (state->far)
		return socket_far_reconnect(d);
	return v.r->kind == SOCKET_CONNECTED ? take_end(d, v.r) : make_unconnected(d, &v);
}

static int refill_connected(struct fermata_desc *d, const struct socket_view *v)
{
	struct socket_restart *state = d->priv;
	bool shut = v->r->flags & SOCKET_END_OF_FILE;
	int r, peer_end = state->parked;

	if (peer_end < 0 && (v->r->content_length || shut)) {
		peer_end = fdpass_take((int)v->r->maker_pid, v->r->maker_fd);
		if (peer_end < 0)
			return fermata_fail(peer_end, "fd %d: its peer, fd %d of process %u, cannot be taken (errno %d)", d->fd,
					    v->r->maker_fd, v->r->maker_pid, -peer_end);
	}
	r = socket_queue_put(d->fd, peer_end, d->fd, v->r, v->content);
	if (!r && shut)
		r = (int)RAW2(SYS_shutdown, peer_end, SHUT_WR);
	if (!r && v->r->flags & SOCKET_READ_SHUT && v->r->type != SOCK_DGRAM)
		r = (int)RAW2(SYS_shutdown, d->fd, SHUT_RD);
	if (peer_end >= 0)
		raw_close(peer_end);
	state->parked = -EBADF;
	return r;
}

int socket_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	const struct socket_restart *state = d->priv;
	struct socket_view v;
	int r = view(d, record, len, &v);

	if (!r && v.r->kind == SOCKET_CONNECTED)
		r = state->far ? socket_far_refill(d) : refill_connected(d, &v);
	if (!r && v.r->kind == SOCKET_PENDING)
		r = socket_pending_connect(d, v.r);
	if (!r && v.r->kind == SOCKET_CONNECTING)
		r = socket_connecting_later(d, &state->record);
	if (!r && v.r->kind == SOCKET_ORPHAN && !socket_is_tcp(v.r))
		r = refill_orphan(d, &v);
	if (!r && socket_is_unix_datagram(v.r) && (v.r->kind == SOCKET_FRESH || v.r->kind == SOCKET_NAMED))
		r = socket_datagram_refill(d, v.r, v.content);
	if (!r && socket_is_unix_datagram(v.r))
		r = socket_datagram_shut(d->fd, v.r);
	if (!r && v.r->kind == SOCKET_ORPHAN && socket_is_tcp(v.r) && v.r->flags & SOCKET_WRITE_SHUT)
		RAW2(SYS_shutdown, d->fd, SHUT_WR);
	if (!r)
		r = socket_options_restore(d->fd, d->fd, v.options, v.r->option_count, false);
	if (!r && socket_is_udp(v.r))
		socket_udp_refill(d, v.r, v.content);
	return r;
}

