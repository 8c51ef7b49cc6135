/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets: TCP and unix stream ones, listening, or connected between processes of the job, with what is under way in both
 * directions. This file is the plugin: records and the order of the restart.
 *
 *   RECREATE   of a connection's two ends the maker (the lower (pid, fd)) makes both (socket_pair.c), keeps its own, parks the
 *              other and publishes its number
 *   RECONNECT  the peer takes the parked end by pidfd_getfd. Listeners and unconnected sockets come back: now, since a
 *              connection made at a listener's port needs that port for a moment
 *   REFILL     each end writes what it had queued into its peer's end, of which it holds a copy for that: the maker has the
 *              parked one, the other takes the maker's. An end of file follows the content in the same way. Then options.
 *
 * SO_REUSEADDR. When the job is killed, its connections leave their ports in TIME_WAIT for a minute, and a port in that state can be
 * bound to only if the dead socket had SO_REUSEADDR, as well as the new one. So a checkpoint sets it on the TCP sockets
 * that it has recorded, and a restart leaves it set: the one trace that a checkpoint leaves in a program that goes on.
 *
 * After REFILL only the program's own descriptors are left: ends of file come when the program closes.
 *
 * Credentials: SO_PEERCRED of a restored unix connection names the maker at both ends.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define SOCKET_RECORD_VERSION 1
#define OPTIONS_MAX 32
#define BIND_TRIES 40

struct end_key {
	char tag[7];  /* "socket/" */
	char kind[4]; /* "end/" */
	uint32_t maker_pid;
	int32_t maker_fd;
} PACKED;

struct socket_restart { /* priv, from restore to refill */
	int parked; /* the maker: the peer's end; else -EBADF */
};

struct socket_view { /* a record, taken apart */
	const struct socket_record *r;
	const struct socket_option *options;
	const char *content;
};

static bool is_inet(int domain)
{
	return domain == AF_INET || domain == AF_INET6;
}

static bool is_tcp(const struct socket_record *r)
{
	return is_inet(r->domain) && r->type == SOCK_STREAM;
}

static bool is_bound(const struct socket_record *r)
{
	return is_inet(r->domain) ? r->local.length > 4 && (r->local.bytes[2] || r->local.bytes[3]) : r->local.length > 2;
}

static int classify(struct fermata_desc *d, struct socket_state *s)
{
	struct socket_record *r = &s->record;

	r->version = SOCKET_RECORD_VERSION;
	r->domain = socket_get_int(d->fd, SOL_SOCKET, SO_DOMAIN);
	r->type = socket_get_int(d->fd, SOL_SOCKET, SO_TYPE);
	r->protocol = socket_get_int(d->fd, SOL_SOCKET, SO_PROTOCOL);
	r->ino = d->st.st_ino;
	r->maker_pid = fermata_pid();
	r->maker_fd = d->fd;
	socket_name_get(d->fd, false, &r->local);
	if (r->domain == AF_UNIX && r->type == SOCK_STREAM)
		return socket_unix_claim(d, s);
	if (is_inet(r->domain) && r->type == SOCK_STREAM && r->protocol == IPPROTO_TCP)
		return socket_tcp_claim(d, s);
	return fermata_fail(-EOPNOTSUPP, "fd %d is a socket of family %d, type %d, which is not supported yet: close it before "
			    "the checkpoint", d->fd, r->domain, r->type);
}

static int socket_fd_claim(struct fermata_desc *d)
{
	int r;

	if (!S_ISSOCK(d->st.st_mode) || d->status & O_PATH)
		return 0;
	d->priv = fermata_alloc(sizeof(struct socket_state));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	r = classify(d, d->priv);
	return r ? r : 1;
}

bool socket_peer_resolve(const void *key, size_t keylen, struct socket_peer *ret)
{
	struct socket_peer p;
	const void *value;
	bool found = false;
	size_t len;

	for (unsigned int i = 0; (value = fermata_resolve(key, keylen, i, &len)); i++) {
		if (len < sizeof(p))
			continue;
		memcpy(&p, value, sizeof(p));
		if (!found || p.pid < ret->pid || (p.pid == ret->pid && p.fd < ret->fd))
			*ret = p;
		found = true;
	}
	return found;
}

void socket_peer_found(struct fermata_desc *d, struct socket_state *s, const struct socket_peer *lowest)
{
	struct socket_record *r = &s->record;
	uint32_t self = fermata_pid();

	s->peer = *lowest;
	r->peer_pid = lowest->pid;
	r->peer_fd = lowest->fd;
	r->peer_domain = lowest->domain;
	r->peer_ino = lowest->ino;
	if (lowest->pid < self || (lowest->pid == self && lowest->fd < d->fd)) {
		r->maker_pid = lowest->pid;
		r->maker_fd = lowest->fd;
	}
}

static int socket_fd_drain(struct fermata_desc *d, unsigned int round)
{
	struct socket_state *s = d->priv;

	if (s->record.domain == AF_UNIX)
		return socket_unix_drain(d, s, round);
	return is_tcp(&s->record) ? socket_tcp_drain(d, s, round) : FERMATA_DRAINED;
}

static int socket_fd_follow(struct fermata_desc *d, unsigned int round)
{
	struct socket_state *s = d->priv;

	return is_tcp(&s->record) ? socket_tcp_follow(d, s, round) : 0;
}

static int socket_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct socket_option options[OPTIONS_MAX];
	struct socket_state *s = d->priv;
	struct socket_record *r = &s->record;
	int err = 0;

	r->receive_buffer = (uint32_t)socket_get_int(d->fd, SOL_SOCKET, SO_RCVBUF);
	r->option_count = (uint32_t)socket_options_dump(d->fd, r, options, OPTIONS_MAX);
	if ((r->kind == SOCKET_CONNECTED || r->kind == SOCKET_ORPHAN) && !s->content)
		err = socket_queue_peek(d->fd, r, &s->content, &s->content_length);
	r->content_length = s->content_length;
	if (is_tcp(r))
		socket_set_int(d->fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!err)
		err = fermata_sink_write(sink, r, sizeof(*r));
	if (!err)
		err = fermata_sink_write(sink, options, r->option_count * sizeof(options[0]));
	if (!err)
		err = fermata_sink_write(sink, s->content, s->content_length);
	fermata_free(s->content);
	s->content = NULL;
	return err;
}

static int socket_fd_resume(struct fermata_desc *d)
{
	struct socket_state *s = d->priv;

	fermata_free(s->content);
	s->content = NULL;
	return 0;
}

/* ---- restart ---- */

static int view(const struct fermata_desc *d, const void *record, size_t len, struct socket_view *ret)
{
	const struct socket_record *r = record;

	memset(ret, 0, sizeof(*ret));
	if (len < sizeof(*r) || (len - sizeof(*r)) / sizeof(*ret->options) < r->option_count ||
	    len - sizeof(*r) - r->option_count * sizeof(*ret->options) < r->content_length)
		return fermata_fail(-EBADMSG, "fd %d: the record of its socket is cut", d->fd);
	ret->r = r;
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

/* Its peer is gone: all happens here and now. */
static int restore_orphan(const struct fermata_desc *d, const struct socket_view *v)
{
	const struct linger reset = { 1, 0 };
	int ends[2], r = socket_pair_make(d->fd, v->r, ends);

	if (r)
		return r;
	r = socket_queue_put(d->fd, ends[1], ends[0], v->r, v->content);
	if (v->r->flags & SOCKET_ERROR && !is_tcp(v->r)) /* closing with something unread reports a reset */
		RAW6(SYS_sendto, ends[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	if (v->r->flags & SOCKET_ERROR && is_tcp(v->r))
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
	if (is_tcp(v->r))
		socket_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	err = socket_options_restore(fd, v->options, v->r->option_count, true);
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

static int socket_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	struct socket_restart *state = fermata_alloc(sizeof(*state));
	struct socket_view v;
	struct end_key key;
	int r = view(d, record, len, &v);

	if (r || !state)
		return r ? r : -ENOMEM;
	state->parked = -EBADF;
	d->priv = state;
	if (v.r->kind == SOCKET_ORPHAN)
		return restore_orphan(d, &v);
	if (v.r->kind == SOCKET_PENDING) /* connects in REFILL */
		return make_socket(d, &v);
	if (v.r->kind != SOCKET_CONNECTED)
		return FERMATA_FD_LATER;
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
	const void *value = fermata_resolve(&key, sizeof(key), 0, &len);
	int fd;

	if (!value || len < sizeof(parked))
		return fermata_fail(-ENOTCONN, "fd %d: its peer, fd %d of process %u, has not come back", d->fd, r->peer_fd,
				    r->peer_pid);
	memcpy(&parked, value, sizeof(parked));
	fd = fdpass_take((int)r->maker_pid, parked);
	if (fd < 0)
		fermata_fail(fd, "fd %d cannot be taken from process %u: pidfd_getfd is refused (errno %d)", d->fd,
			     r->maker_pid, -fd);
	return fd;
}

static int bind_again(int fd, const struct fermata_desc *d, const struct socket_record *r)
{
	const struct timespec pause = { 0, 5000000 };
	char text[120], path[sizeof(r->local.bytes) + 1] = { 0 };
	bool is_path = r->domain == AF_UNIX && r->local.bytes[2];
	int err;

	if (is_path) {
		memcpy(path, r->local.bytes + 2, r->local.length - 2);
		socket_path_clear(&r->local);
	}
	for (int i = 0; (err = socket_bind(fd, &r->local)) == -EADDRINUSE && i < BIND_TRIES; i++)
		RAW2(SYS_nanosleep, &pause, NULL); /* the last of the killed job's connections may still be on their way out */
	if (err) {
		socket_name_text(&r->local, text, sizeof(text));
		return fermata_fail(err, err == -EADDRINUSE ? "fd %d: %s is in use (errno %d): end the program that has it" :
							      "fd %d: %s cannot be bound to (errno %d)", d->fd, text, -err);
	}
	if (is_path && r->flags & SOCKET_PATH_PRESENT)
		err = (int)RAW3(SYS_fchmodat, AT_FDCWD, path, r->mode);
	else if (is_path)
		err = (int)RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
	return err;
}

static int make_unconnected(const struct fermata_desc *d, const struct socket_view *v)
{
	int fd = make_socket(d, v), err = 0;

	if (fd < 0)
		return fd;
	if (is_bound(v->r))
		err = bind_again(fd, d, v->r);
	if (!err && v->r->kind == SOCKET_LISTENING)
		err = (int)RAW2(SYS_listen, fd, v->r->backlog);
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

static int socket_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	struct socket_view v;
	int r = view(d, record, len, &v);

	if (r)
		return r;
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
	if (!r && v->r->flags & SOCKET_READ_SHUT)
		r = (int)RAW2(SYS_shutdown, d->fd, SHUT_RD);
	if (peer_end >= 0)
		raw_close(peer_end);
	state->parked = -EBADF;
	return r;
}

static int socket_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	struct socket_view v;
	int r = view(d, record, len, &v);

	if (!r && v.r->kind == SOCKET_CONNECTED)
		r = refill_connected(d, &v);
	if (!r && v.r->kind == SOCKET_PENDING)
		r = socket_pending_connect(d, v.r);
	if (!r && v.r->kind == SOCKET_ORPHAN && is_tcp(v.r) && v.r->flags & SOCKET_WRITE_SHUT)
		RAW2(SYS_shutdown, d->fd, SHUT_WR);
	return r ? r : socket_options_restore(d->fd, v.options, v.r->option_count, false);
}

extern const struct fermata_plugin plugin_socket;
const struct fermata_plugin plugin_socket = {
	.api = FERMATA_PLUGIN_API,
	.name = "socket",
	.fd_claim = socket_fd_claim,
	.fd_drain = socket_fd_drain,
	.fd_follow = socket_fd_follow,
	.fd_dump = socket_fd_dump,
	.fd_resume = socket_fd_resume,
	.fd_restore = socket_fd_restore,
	.fd_reconnect = socket_fd_reconnect,
	.fd_refill = socket_fd_refill,
	.resume = socket_guards_end,
	.restarted = socket_guards_forget,
};
