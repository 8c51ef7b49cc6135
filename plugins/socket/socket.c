/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets: TCP and unix ones, listening, or connected between processes of the job, with what is under way in both
 * directions. This file is the plugin and its part of a checkpoint: what a socket is, and its record. The order of the restart stands in
 * socket_restart.c. No state of its own.
 *
 * SO_REUSEADDR. When the job is killed, its connections leave their ports in TIME_WAIT for a minute, and a port in that state can be
 * bound to only if the dead socket had SO_REUSEADDR, as well as the new one. So a checkpoint sets it on the TCP sockets
 * that it has recorded, and a restart leaves it set: the one trace that a checkpoint leaves in a program that goes on. Connections that the program has ended before have it from their
 * listener, on which the wrapper of listen sets it: a port that is listened at is not given to another for that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"

#define OPTIONS_MAX 256

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
	if (socket_get_int(d->fd, SOL_SOCKET, SO_ZEROCOPY) > 0)
		return fermata_fail(-EOPNOTSUPP, "fd %d is a socket that sends without a copy (SO_ZEROCOPY, which libc's setsockopt would have refused): have the program do without", d->fd);
	if (r->domain == AF_UNIX)
		return socket_unix_claim(d, s);
	if (socket_is_inet(r->domain) && r->type == SOCK_STREAM && r->protocol == IPPROTO_TCP)
		return socket_tcp_claim(d, s);
	if (socket_is_udp(r) && r->protocol == IPPROTO_UDP)
		return socket_udp_claim(s);
	if (r->domain == AF_NETLINK)
		return socket_netlink_claim(d, s);
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

static bool is_before(const struct socket_peer *a, const struct socket_peer *b)
{
	bool here = a->host == fermata_host();

	if (here != (b->host == fermata_host()))
		return here;
	return a->pid < b->pid || (a->pid == b->pid && a->fd < b->fd);
}

bool socket_peer_resolve(bool job, const void *key, size_t keylen, struct socket_peer *ret)
{
	struct socket_peer p;
	const void *value;
	bool found = false;
	size_t len;

	for (unsigned int i = 0; (value = (job ? fermata_job_resolve : fermata_resolve)(key, keylen, i, &len)); i++) {
		if (len < sizeof(p))
			continue;
		memcpy(&p, value, sizeof(p));
		if (!found || is_before(&p, ret))
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
	r->peer_receive_buffer = lowest->receive_buffer;
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
	if (socket_is_udp(&s->record))
		return socket_udp_drain(d, s, round);
	return socket_is_tcp(&s->record) ? socket_tcp_drain(d, s, round) : FERMATA_DRAINED;
}

static int socket_fd_follow(struct fermata_desc *d, unsigned int round)
{
	struct socket_state *s = d->priv;

	return socket_is_tcp(&s->record) ? socket_tcp_follow(d, s, round) : 0;
}

int socket_check_urgent(int fd, const struct socket_record *r)
{
	int events = r->type == SOCK_STREAM && (r->kind == SOCKET_CONNECTED || r->kind == SOCKET_ORPHAN) ? socket_poll(fd, POLLPRI, 0) : 0;

	return events <= 0 || !(events & POLLPRI) ? 0 :
						     fermata_fail(-EAGAIN, "fd %d has urgent data (MSG_OOB) that nobody has read, which is not supported: read it before the checkpoint", fd);
}

static int socket_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct socket_option options[OPTIONS_MAX];
	struct socket_state *s = d->priv;
	struct socket_record *r = &s->record;
	int err = socket_check_urgent(d->fd, r);

	socket_queue_narrow(d, s);
	if (err)
		return err;
	r->receive_buffer = (uint32_t)socket_get_int(d->fd, SOL_SOCKET, SO_RCVBUF);
	err = socket_options_dump(d->fd, r, options, OPTIONS_MAX);
	if (err < 0)
		return err;
	r->option_count = (uint32_t)err;
	err = 0;
	if (socket_is_tcp(r) && (r->kind == SOCKET_CONNECTED || r->kind == SOCKET_ORPHAN) && !s->content)
		err = socket_queue_peek(d->fd, &s->content, &s->content_length);
	if (r->domain == AF_UNIX || socket_is_udp(r)) {
		s->content = s->messages.bytes;
		s->content_length = s->messages.length;
		s->messages.bytes = NULL;
	}
	r->content_length = s->content_length;
	if (socket_is_tcp(r)) {
		err = err ? err : socket_tcp_drained(d, s);
		socket_set_int(d->fd, SOL_SOCKET, SO_REUSEADDR, 1);
	}
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

	socket_queue_narrow(d, s);
	fermata_free(s->content);
	fermata_free(s->messages.bytes);
	s->content = s->messages.bytes = NULL;
	return 0;
}

static void socket_resume(void)
{
	socket_flight_end();
	socket_guards_end();
}

static int socket_refill(void)
{
	socket_path_link();
	return socket_flight_refill();
}

static void socket_restarted(void)
{
	socket_connecting_restarted();
	socket_flight_end();
	socket_datagrams_end();
	socket_path_end();
	socket_seen_forget();
	socket_far_end();
	socket_guards_forget();
}

extern const struct fermata_plugin plugin_socket;
const struct fermata_plugin plugin_socket = {
	.api = FERMATA_PLUGIN_API,
	.name = "socket",
	.fd_unpack = socket_flight_unpack,
	.fd_claim = socket_fd_claim,
	.fd_drain = socket_fd_drain,
	.fd_let_go = socket_unix_let_go,
	.fd_follow = socket_fd_follow,
	.fd_dump = socket_fd_dump,
	.fd_resume = socket_fd_resume,
	.fd_restore = socket_fd_restore,
	.fd_reconnect = socket_fd_reconnect,
	.fd_refill = socket_fd_refill,
	.quiesce = socket_process_publish,
	.refill = socket_refill,
	.resume = socket_resume,
	.restarted = socket_restarted,
};
