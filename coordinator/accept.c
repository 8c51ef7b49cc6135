/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who connects: the processes and commands of this host to the job's unix socket, relays of other hosts to TCP ports. Owns the listeners.
 *
 * Over the network anybody can connect. Who has not proved the key is no process that is being created, so he delays no SUSPEND; and of such only
 * the newest few are kept, so he takes no descriptors from others.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"

#define ACCEPT_STRANGERS 64u

static void accept_incoming(uv_poll_t *poll, int status, int events)
{
	accept_all(container_of(poll, struct coordinator, listener));
}

static void accept_drop_stranger(struct coordinator *c)
{
	struct conn *k, *oldest = NULL;
	size_t count = 0;

	list_each(k, &c->conns, node) {
		if (!k->network || k->state == CONN_TUNNEL)
			continue;
		oldest = oldest ? oldest : k;
		count++;
	}
	if (count > ACCEPT_STRANGERS)
		connection_close(oldest);
}

static int accept_one(struct coordinator *c, int listener, bool network)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct conn *k;

	if (fd < 0)
		return -errno;
	if ((network ? network_options(fd, relayed_silence(c)) : setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one))) < 0 ||
	    !(k = connection_make(c, fd, CONN_HELLO, network))) {
		close(fd);
		return -ENOMEM;
	}
	if (network) {
		accept_drop_stranger(c);
		return 0;
	}
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	k->dialer = k->sender = cred.pid;
	if (c->options->relay)
		relay_accepted(k);
	return 0;
}

/* Out of descriptors: those that wait are accepted when others have gone. */
static bool accept_from(struct coordinator *c, int listener, uv_poll_t *poll, bool network)
{
	int r;

	do {
		r = accept_one(c, listener, network);
	} while (r == 0 || r == -EINTR || r == -ECONNABORTED);
	if (r == -EAGAIN)
		return true;
	if (!c->accept_blocked)
		log_error("a connection could not be accepted: %s; raise the limit of open files (ulimit -n)", strerror(-r));
	c->accept_blocked = true;
	uv_poll_stop(poll);
	return false;
}

bool accept_all(struct coordinator *c)
{
	return accept_from(c, c->listen_fd, &c->listener, false);
}

static void accept_incoming_network(uv_poll_t *poll, int status, int events)
{
	struct port *p = container_of(poll, struct port, poll);

	accept_from(p->c, p->fd, poll, true);
}

void accept_again(struct coordinator *c)
{
	if (!c->accept_blocked || c->state == STATE_ENDING)
		return;
	c->accept_blocked = false;
	uv_poll_start(&c->listener, UV_READABLE, accept_incoming);
	for (uint32_t i = 0; i < c->port_count; i++)
		uv_poll_start(&c->ports[i].poll, UV_READABLE, accept_incoming_network);
}

int accept_listen(struct coordinator *c)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", c->jobdir);

	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listen_fd < 0)
		return -errno;
	if (bind(c->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(c->listen_fd, 4096) < 0)
		return -errno;
	uv_poll_init(&c->loop, &c->listener, c->listen_fd);
	return uv_poll_start(&c->listener, UV_READABLE, accept_incoming);
}

/* The socket that listens at @address; its true address goes to @ret. */
static int port_open(const struct sockaddr_storage *address, socklen_t len, char *ret, size_t size)
{
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, r = 0;
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct sockaddr_storage bound;
	socklen_t bound_len = sizeof(bound);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 || bind(fd, (const struct sockaddr *)address, len) < 0 ||
	    listen(fd, 1024) < 0 || getsockname(fd, (struct sockaddr *)&bound, &bound_len) < 0)
		r = -errno;
	if (!r && getnameinfo((struct sockaddr *)&bound, bound_len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		r = -EADDRNOTAVAIL;
	if (r < 0) {
		close(fd);
		return r;
	}
	snprintf(ret, size, address->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return fd;
}

/* One that listens there, or everywhere, already? */
static const struct port *port_find(const struct coordinator *c, const char *address)
{
	size_t host = (size_t)(strrchr(address, ':') - address);
	bool any = !strcmp(address + host, ":0");

	for (uint32_t i = 0; i < c->port_count; i++) {
		const struct port *p = &c->ports[i];

		if (any ? !strncmp(p->address, address, host + 1) : !strcmp(p->address, address))
			return p;
	}
	return NULL;
}

static int port_add(struct coordinator *c, const char *address)
{
	struct port *p = &c->ports[c->port_count];
	struct sockaddr_storage where;
	socklen_t len;
	int r = network_address(address, true, &where, &len);

	if (!r && c->port_count == COORDINATOR_PORTS)
		r = -EMFILE;
	if (!r)
		r = p->fd = port_open(&where, len, p->address, sizeof(p->address));
	if (r < 0)
		return r;
	p->c = c;
	uv_poll_init(&c->loop, &p->poll, p->fd);
	uv_poll_start(&p->poll, UV_READABLE, accept_incoming_network);
	c->port_count++;
	log_info("listening at %s", p->address);
	return 0;
}

const char *accept_network(struct coordinator *c, const char *address, int *ret_error, char *text, size_t size)
{
	const struct port *p = strrchr(address, ':') ? port_find(c, address) : NULL;
	int r = 0;

	if (p)
		return p->address;
	if (!c->port_count)
		r = network_key(c->options->job, true, c->network_key);
	if (r < 0)
		snprintf(text, size, "the key for jobs on several hosts (~/.config/fermata/key, or $FERMATA_KEY): %s", strerror(-r));
	else if ((r = port_add(c, address)) < 0)
		snprintf(text, size, "listening at %s: %s: ADDRESS:PORT of this host is needed, port 0 for any", address, strerror(-r));
	*ret_error = r;
	return r < 0 ? NULL : c->ports[c->port_count - 1].address;
}

void accept_close(struct coordinator *c)
{
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	for (uint32_t i = 0; i < c->port_count; i++)
		close(c->ports[i].fd);
}
