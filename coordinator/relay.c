/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A relay: stands in for a job's coordinator at another host. It is a coordinator that conducts nothing: it has RUNDIR/JOB, its socket and a key of
 * its own, and passes on what comes on each connection that has proved that key, over one connection to the coordinator (tunnel.h). Processes and commands see no
 * difference. Owns the upstream connection, and what the coordinator asks a host for: a look at the accept queue, at a process, the end of one.
 *
 * It goes as a coordinator does, under the start lock, when its last connection has ended. When the upstream connection ends, its connections end, too: each
 * program is told so and goes on without checkpoints, as when a coordinator has ended (if we are killed, nobody says it: protocol.md, MSG_WELCOME_WITH_RELAY). But when the coordinator's host is not to be reached, it takes this one for lost,
 * and where the job is brought back when something is lost (--on-failure), it will be, elsewhere: then the processes here are ended first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"
#include "coordinator/tunnel.h"
#include "protocol/link.h"

#define RELAY_CONNECT_S 20
#define RELAY_WELCOME_MS 30000
#define RELAY_LEAVING_MS 5
#define RELAY_SILENCE_S 30 /* until the coordinator has said what it takes */

static int relay_dial(const char *target)
{
	struct timeval patience = { .tv_sec = RELAY_CONNECT_S };
	struct sockaddr_storage address;
	socklen_t len;
	int r = network_address(target, false, &address, &len), fd;

	if (r < 0)
		return r;
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, len) < 0 || (r = network_options(fd, RELAY_SILENCE_S)) < 0) {
		r = r < 0 ? r : errno == EINPROGRESS ? -ETIMEDOUT : -errno;
		close(fd);
		return r;
	}
	return fd;
}

/* The proof is made while nothing else is done; from then on the loop has the connection. */
static int relay_join(struct coordinator *c)
{
	uint8_t client[PROTOCOL_NONCE_SIZE], server[PROTOCOL_NONCE_SIZE];
	struct link link;
	int fd = relay_dial(c->options->relay), r;

	if (fd < 0)
		return fd;
	r = link_open_nonces(&link, fd, c->network_key, client, server);
	if (r < 0)
		return r;
	link.fd = -EBADF; /* taken over */
	link_close(&link);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	c->upstream = connection_make(c, fd, CONN_TUNNEL, true);
	if (!c->upstream) {
		close(fd);
		return -ENOMEM;
	}
	return tunnel_begin(c->upstream, client, server, false);
}

static void relay_not_welcomed(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, phase_timer);

	log_error("the coordinator at %s does not answer", c->options->relay);
	c->exit_error = -ETIMEDOUT;
}

int relay_open(struct coordinator *c)
{
	struct tunnel_hello hello = { 0 };
	int r = network_key(c->options->job, false, c->network_key);

	if (r < 0)
		return r;
	r = relay_join(c);
	if (r < 0) {
		log_error("the coordinator of job %s at %s: %s%s", c->options->job, c->options->relay, strerror(-r),
			  r == -EACCES ? ": its key is another one: copy ~/.config/fermata/key from its host, and see that the job is called so there" : "");
		return r;
	}
	gethostname(hello.host, sizeof(hello.host) - 1);
	snprintf(hello.target, sizeof(hello.target), "%s", c->options->relay);
	tunnel_send(c->upstream, TUNNEL_HELLO, 0, 0, &hello, sizeof(hello));
	uv_timer_start(&c->phase_timer, relay_not_welcomed, RELAY_WELCOME_MS, 0);
	while (!c->relay_ready && !c->exit_error)
		uv_run(&c->loop, UV_RUN_ONCE);
	uv_timer_stop(&c->phase_timer);
	return c->exit_error;
}

static void relay_end(struct coordinator *c, int error)
{
	c->exit_error = error;
	uv_stop(&c->loop);
}

/* Images are written by the processes themselves: where they are all looked for. */
static int relay_check_directory(const struct tunnel_welcome *w)
{
	char path[sizeof(w->directory) + 8], mark[sizeof(w->mark)] = "";
	int fd, r = 0;

	snprintf(path, sizeof(path), "%s/.lock", w->directory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		r = -errno;
	else if (read(fd, mark, sizeof(mark) - 1) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	mark[strcspn(mark, "\n")] = 0;
	if (!r && strcmp(mark, w->mark))
		r = -EXDEV;
	if (r)
		log_error("checkpoint directory %s: %s: begin the job with a --dir that all of its hosts have in common", w->directory,
			  r == -EXDEV ? "it is another one than at the host of the coordinator" : strerror(-r));
	return r;
}

static void relay_welcomed(struct coordinator *c, const uint8_t *data, uint32_t length)
{
	struct tunnel_welcome w;
	int r;

	if (length < sizeof(w)) {
		relay_end(c, -EPROTO);
		return;
	}
	memcpy(&w, data, sizeof(w));
	w.directory[sizeof(w.directory) - 1] = w.mark[sizeof(w.mark) - 1] = 0;
	r = relay_check_directory(&w);
	if (r < 0) {
		relay_end(c, r);
		return;
	}
	snprintf(c->store.dir, sizeof(c->store.dir), "%.*s", (int)sizeof(c->store.dir) - 1, w.directory);
	network_options(c->upstream->fd, w.silence_s / 2);
	c->relay_protected = w.flags & TUNNEL_WELCOME_PROTECTED;
	c->relay_ready = true;
}

static void relay_sync_again(uv_timer_t *timer);

static void relay_answer_sync(struct coordinator *c)
{
	if (!c->sync || !accept_all(c) || !c->upstream)
		return;
	if (leaving_one(c)) {
		uv_timer_start(&c->retry_timer, relay_sync_again, RELAY_LEAVING_MS, 0);
		return;
	}
	tunnel_send(c->upstream, TUNNEL_SYNCED, 0, c->sync, NULL, 0);
	c->sync = 0;
}

static void relay_sync_again(uv_timer_t *timer)
{
	relay_answer_sync(container_of(timer, struct coordinator, retry_timer));
}

static void relay_look(struct conn *k, uint32_t value)
{
	const bool let_run = value & TUNNEL_LOOK_LET_RUN;
	char text[256];
	int r = silent_look(k->c, k->sender, let_run, "?", (value & ~TUNNEL_LOOK_LET_RUN) * 1000000ull, text, sizeof(text));

	if (let_run)
		let_run_newborn(k->c, k->sender);
	if (r)
		tunnel_send(k->c->upstream, TUNNEL_LOOKED, k->channel, (uint32_t)r, text, strlen(text));
}

static void relay_channel(struct conn *k, const struct tunnel_frame *f, const uint8_t *data)
{
	switch (f->kind) {
	case TUNNEL_DATA:
		connection_put(k, data, f->length);
		break;
	case TUNNEL_CLOSE:
		connection_close(k);
		break;
	case TUNNEL_SHUT:
		connection_shutdown(k);
		break;
	case TUNNEL_KILL:
		member_kill_behind(k, k->sender, "a process of this host");
		break;
	case TUNNEL_LOOK:
		relay_look(k, f->value);
		break;
	}
}

void relay_frame(struct conn *k, const struct tunnel_frame *f, const uint8_t *data)
{
	struct conn *channel = f->channel ? tunnel_channel(k, f->channel) : NULL;
	struct coordinator *c = k->c;

	if (channel) {
		relay_channel(channel, f, data);
	} else if (f->kind == TUNNEL_WELCOME && !c->relay_ready) {
		relay_welcomed(c, data, f->length);
	} else if (f->kind == TUNNEL_REFUSED) {
		log_error("the coordinator of job %s at %s refuses: %.*s", c->options->job, c->options->relay, (int)f->length, (const char *)data);
		relay_end(c, -ECONNREFUSED);
	} else if (f->kind == TUNNEL_SYNC) {
		c->sync = f->value;
		relay_answer_sync(c);
	}
}

void relay_accepted(struct conn *k)
{
	struct conn *upstream = k->c->upstream;

	k->channel = upstream ? tunnel_channel_new(upstream, k) : 0;
	if (k->channel)
		tunnel_send(upstream, TUNNEL_OPEN, k->channel, (uint32_t)k->dialer, NULL, 0);
	else
		connection_broken(k); /* and its end is seen */
}

void relay_forward(struct conn *k, const uint8_t *data, size_t len)
{
	if (k->c->upstream && k->channel)
		tunnel_send(k->c->upstream, TUNNEL_DATA, k->channel, (uint32_t)k->sender, data, len);
}

static void relay_lost(struct coordinator *c, int error)
{
	bool silent = error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH;
	struct conn *k;

	if (!silent || !c->relay_protected) {
		list_each(k, &c->conns, node)
			if (k->channel) /* else they would take it for our own death (MSG_WELCOME_WITH_RELAY) */
				connection_send_error(k, -ECONNRESET, "the job's coordinator is gone");
		log_warn("the coordinator at %s is gone: the programs here go on without checkpoints", c->options->relay);
		return;
	}
	log_warn("the coordinator at %s is not to be reached: the programs here are ended, for the job comes back elsewhere", c->options->relay);
	list_each(k, &c->conns, node)
		member_kill_behind(k, k->sender, "a process of this host");
}

void relay_closed(struct conn *k)
{
	struct coordinator *c = k->c;

	if (k == c->upstream) {
		c->upstream = NULL;
		if (!c->exit_error)
			relay_lost(c, k->error);
		relay_end(c, -ECONNRESET);
	} else if (c->upstream && k->channel) {
		tunnel_channel_set(c->upstream, k->channel, NULL);
		tunnel_send(c->upstream, TUNNEL_CLOSE, k->channel, 0, NULL, 0);
		relay_answer_sync(c);
	}
}

void relay_leave(struct coordinator *c)
{
	if (!c->upstream)
		return;
	tunnel_send(c->upstream, TUNNEL_LEAVING, 0, 0, NULL, 0);
	tunnel_flush_all(&c->flush);
}
