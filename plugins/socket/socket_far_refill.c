/* SPDX-License-Identifier: BSD-2-Clause */
/* REFILL of far connections (socket_far_restart.c): what was unread goes to the other end and comes back. No state of its own. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket_far.h"

#define IDLE_TRIES 10000 /* of 2 ms each */

static int take_hello(struct far_end *e)
{
	if (memcmp(e->other.token, e->own.token, sizeof(e->own.token)))
		return -ECONNABORTED;
	if (!e->other.length || e->back)
		return 0;
	e->back = fermata_alloc(e->other.length);
	return e->back ? 0 : -ENOMEM;
}

/* How many bytes have moved, or -errno. */
static long send_some(struct far_end *e)
{
	bool in_hello = e->sent < sizeof(e->own);
	const char *from = in_hello ? (const char *)&e->own + e->sent : e->content + (e->sent - sizeof(e->own));
	size_t left = in_hello ? sizeof(e->own) - e->sent : e->own.length + sizeof(e->own) - e->sent;
	long n = left ? RAW6(SYS_sendto, e->fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) : 0;

	if (n > 0)
		e->sent += (uint64_t)n;
	return n == -EAGAIN || n == -EINTR ? 0 : n;
}

static long receive_some(struct far_end *e)
{
	bool in_hello = e->got < sizeof(e->other);
	int r = in_hello ? 0 : take_hello(e);
	char *to = in_hello ? (char *)&e->other + e->got : e->back + (e->got - sizeof(e->other));
	size_t left = in_hello ? sizeof(e->other) - e->got : e->other.length + sizeof(e->other) - e->got;
	long n;

	if (r || !left)
		return r;
	n = socket_receive(e->fd, to, left, 0);
	if (n > 0)
		e->got += (uint64_t)n;
	return n == -EAGAIN ? 0 : n ? n : -ECONNRESET;
}

static bool is_exchanged(const struct far_end *e)
{
	return e->sent == sizeof(e->own) + e->own.length && e->got >= sizeof(e->other) && e->got == sizeof(e->other) + e->other.length;
}

/* Of all connections at once: processes that took one after the other could wait for each other. */
static int exchange_all(void)
{
	size_t done = 0;

	for (size_t i = 0; i < socket_far_list.count; i++)
		socket_queue_make_room(socket_far_list.ends[i].fd, socket_far_list.ends[i].r);
	for (int idle = 0; done < socket_far_list.count && idle < IDLE_TRIES; idle++) {
		long moved = 0;

		done = 0;
		for (size_t i = 0; i < socket_far_list.count; i++) {
			struct far_end *e = &socket_far_list.ends[i];
			long out = is_exchanged(e) ? 0 : send_some(e), in = is_exchanged(e) ? 0 : receive_some(e);

			if (out < 0 || in < 0)
				return fermata_fail((int)(out < 0 ? out : in), "fd %d: its new connection breaks (errno %d)", e->number,
						    (int)-(out < 0 ? out : in));
			moved += out + in;
			done += is_exchanged(e);
		}
		if (moved)
			idle = 0;
		else if (done < socket_far_list.count)
			socket_pause();
	}
	return done < socket_far_list.count ? fermata_fail(-ETIMEDOUT, "connections to other hosts do not bring what was unread") : 0;
}

static void warn_of_names(const struct far_end *e)
{
	struct socket_name name;
	struct socket_end now, then = socket_end_of(&e->r->local);
	char from[72], to[72];

	if (socket_name_get(e->fd, false, &name))
		return;
	now = socket_end_of(&name);
	if (!memcmp(&now, &then, sizeof(now)))
		return;
	socket_name_text(&e->r->local, from, sizeof(from));
	socket_name_text(&name, to, sizeof(to));
	log_warn("fd %d: the address %s of its connection to another host is not to be had here: it is %s now", e->number, from, to);
}

int socket_far_refill(const struct fermata_desc *d)
{
	struct far_end *e = socket_far_find(d);
	int r = 0;

	for (size_t i = 0; i < socket_far_list.count; i++)
		if (!is_exchanged(&socket_far_list.ends[i]))
			r = r ? r : exchange_all();
	if (!r)
		r = socket_queue_write(e->fd, e->fd, e->back, e->other.length, false);
	if (r == -ENOBUFS)
		r = fermata_fail(r, "fd %d: the %llu bytes that its peer had queued do not fit into the new connection", d->fd,
				 (unsigned long long)e->other.length);
	if (!r && e->other.shut)
		r = (int)RAW2(SYS_shutdown, e->fd, SHUT_WR);
	if (!r && e->r->flags & SOCKET_READ_SHUT)
		r = (int)RAW2(SYS_shutdown, e->fd, SHUT_RD);
	fermata_free(e->back);
	e->back = NULL;
	if (!r)
		warn_of_names(e);
	return r;
}
