/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TCP socket that has asked for a connection and has no answer: its listener's queue is full, or its packets get lost. What has been asked can be asked again, by the new socket of a restart, of whoever is there; nothing
 * is lost, as nothing was sent. That is done last, when all else of the job has come back: the places in a queue are for those who had one (socket_pending.c).
 *
 * A thread that stands in connect looks after the connection when it goes on (agent/call.c). A program that only asks whether it may write finds out likewise. If the connection cannot even be asked for any more (no
 * such network here), it finds it refused.
 *
 * One that has been refused already is refused again, by a port of this host, whether the program has been told of it or not: it may ask anew by the same socket. (Why it was, if for another reason, is lost.)
 *
 * One that was asked of another host of the job is refused for the moment: at a restart that host is elsewhere. Owns the list of those to be asked for again.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"
#include "plugins/socket/socket_tcp.h"

struct connecting {
	struct connecting *next;
	int fd;
	struct socket_record record;
};
static struct connecting *list;

int socket_connecting_claim(struct fermata_desc *d, struct socket_state *s)
{
	if (socket_diag_connecting(s->record.domain, s->record.ino, &s->record.remote))
		return socket_tcp_refuse(d, s, -EAGAIN, "is being set up: try again");
	s->record.kind = SOCKET_CONNECTING;
	s->foreign = !socket_is_local(&s->record.remote);
	return s->foreign ? socket_far_ask_listener(s) : 0;
}

int socket_connecting_drain(struct fermata_desc *d, struct socket_state *s)
{
	if (s->foreign && socket_far_has_listener(s))
		return socket_tcp_refuse(d, s, -EAGAIN, "is being set up with another host of the job: try again");
	return FERMATA_DRAINED;
}

int socket_connecting_later(struct fermata_desc *d, const struct socket_record *r)
{
	struct connecting *c = fermata_alloc(sizeof(*c));

	if (!c)
		return fermata_fail(-ENOMEM, "no memory for the connection of fd %d", d->fd);
	*c = (struct connecting){ list, d->fd, *r };
	list = c;
	return 0;
}

/* Of a port that is bound to, and not listened at. */
static void connect_refused(int fd, int domain)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct socket_name at = { .length = domain == AF_INET ? sizeof(a4) : sizeof(a6) };
	int silent = (int)RAW3(SYS_socket, domain, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(at.bytes, domain == AF_INET ? (void *)&a4 : (void *)&a6, at.length);
	if (silent >= 0 && socket_bind(silent, &at) == 0 && socket_name_get(silent, false, &at) == 0)
		socket_connect(fd, &at);
	if (silent >= 0)
		raw_close(silent);
}

static void ask_again(int fd, const struct socket_record *r)
{
	int flags = raw_fcntl(fd, F_GETFL, 0), err;
	char text[72];

	raw_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	err = socket_connect_from(fd, r->domain, &r->local, &r->remote);
	if (err == -EADDRINUSE || err == -EADDRNOTAVAIL)
		err = socket_connect(fd, &r->remote);
	if (err && err != -EINPROGRESS) {
		socket_name_text(&r->remote, text, sizeof(text));
		log_warn("fd %d: a connection to %s, which was being set up, cannot be asked for here (errno %d): it is refused", fd, text, -err);
		connect_refused(fd, r->domain);
	}
	raw_fcntl(fd, F_SETFL, flags);
}

static void refuse_again(int fd, const struct socket_record *r)
{
	int flags = raw_fcntl(fd, F_GETFL, 0);

	raw_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	connect_refused(fd, r->domain);
	raw_fcntl(fd, F_SETFL, flags);
	if (!(r->flags & SOCKET_ERROR))
		socket_get_int(fd, SOL_SOCKET, SO_ERROR); /* the program has read it */
}

void socket_connecting_restarted(void)
{
	for (struct connecting *c = list, *next; c; c = next) {
		next = c->next;
		if (c->record.flags & SOCKET_END_OF_FILE)
			refuse_again(c->fd, &c->record);
		else
			ask_again(c->fd, &c->record);
		fermata_free(c);
	}
	list = NULL;
}
