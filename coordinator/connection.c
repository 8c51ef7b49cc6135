/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections: the proof of the key, whole messages in, queued bytes out. Owns every struct conn; the
 * loop's handle inside it lives until its close callback, so a closed connection is freed there and nowhere else. One of a process at
 * another host has no descriptor: its bytes come and go through that of the host's relay (tunnel.c).
 *
 * Invariants: a message reaches member.c or command.c only after the key was proved and decode_message() took it.
 * half_open counts the connections in CONN_HELLO, CONN_PROOF and CONN_OPEN, but not strangers of the network: each may be a process that is
 * being created.
 * A send never closes: an error shuts the socket down, and the loop then sees its end.
 */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"
#include "coordinator/tunnel.h"
#include "protocol/auth.h"

#define CONNECTION_READ 65536u
#define CONNECTION_PROOF_MAX 4096u /* bytes of a message from somebody who has not proved the key */

static bool connection_is_half_open(const struct conn *k, enum conn_state s)
{
	return !k->network && (s == CONN_HELLO || s == CONN_PROOF || s == CONN_OPEN);
}

void connection_become(struct conn *k, enum conn_state state)
{
	if (connection_is_half_open(k, k->state) && !connection_is_half_open(k, state))
		k->c->half_open--;
	k->state = state;
}

static void connection_free(uv_handle_t *handle)
{
	struct conn *k = handle->data;

	free(k->in);
	bytes_free(&k->out);
	tunnel_free(k->tunnel);
	free(k);
}

static void connection_let_go(struct conn *k)
{
	if (!k->relay)
		uv_poll_stop(&k->uv.poll);
	uv_close((uv_handle_t *)&k->uv, connection_free);
	if (k->fd >= 0)
		close(k->fd);
	accept_again(k->c);
}

void connection_close(struct conn *k)
{
	struct coordinator *c = k->c;

	if (k->state == CONN_CLOSED)
		return;
	if (k->relay && tunnel_channel(k->relay, k->channel) == k) {
		tunnel_channel_set(k->relay, k->channel, NULL);
		tunnel_send(k->relay, TUNNEL_CLOSE, k->channel, 0, NULL, 0);
	}
	leaving_note(k);
	connection_become(k, CONN_CLOSED);
	list_del(&k->node);
	c->conn_count--;
	connection_let_go(k);
	if (k->member) {
		struct member *m = k->member;

		k->member = NULL;
		member_remove(m);
	}
	if (c->options->relay)
		relay_closed(k);
	else if (k->tunnel)
		relayed_closed(k);
	if (k->wait == WAIT_RESTART && !c->restart_over)
		conduct_fail(c, -ECANCELED, "fermata restart was ended before its processes were restored");
	conduct_check(c);
	run_check_leave(c);
}

static void connection_event(uv_poll_t *poll, int status, int events);

static void connection_watch(struct conn *k)
{
	uv_poll_start(&k->uv.poll, UV_READABLE | (k->out.len > k->out.at ? UV_WRITABLE : 0), connection_event);
}

void connection_broken(struct conn *k)
{
	k->out.at = k->out.len = 0;
	shutdown(k->fd, SHUT_RDWR);
}

static void connection_flush(struct conn *k)
{
	while (k->out.at < k->out.len) {
		ssize_t n = send(k->fd, k->out.data + k->out.at, k->out.len - k->out.at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			connection_broken(k);
			return;
		}
		k->out.at += (size_t)n;
	}
	bytes_free(&k->out);
	if (k->shut)
		shutdown(k->fd, SHUT_WR);
}

static void connection_send_parts(struct conn *k, const struct iovec *part, int count)
{
	if (k->state == CONN_CLOSED)
		return;
	for (int i = 0; i < count; i++) {
		if (!part[i].iov_len)
			continue;
		if (k->relay)
			tunnel_send(k->relay, TUNNEL_DATA, k->channel, 0, part[i].iov_base, part[i].iov_len);
		else if (!bytes_add(&k->out, part[i].iov_base, part[i].iov_len)) {
			log_error("pid %d: no memory for a message", (int)k->sender);
			connection_broken(k);
			return;
		}
	}
	if (k->relay)
		return;
	connection_flush(k);
	if (k->out.len)
		connection_watch(k);
}

void connection_put(struct conn *k, const void *data, size_t len)
{
	connection_send_parts(k, &(struct iovec){ (void *)data, len }, 1);
}

void connection_send(struct conn *k, uint16_t type, const void *a, size_t alen, const void *b, size_t blen)
{
	struct msg_header h = { .magic = PROTOCOL_MAGIC, .type = type, .version = PROTOCOL_VERSION,
				.length = (uint32_t)(alen + blen) };
	const struct iovec part[] = { { &h, sizeof(h) }, { (void *)a, alen }, { (void *)b, blen } };

	connection_send_parts(k, part, 3);
}

void connection_shutdown(struct conn *k)
{
	if (k->relay) {
		tunnel_send(k->relay, TUNNEL_SHUT, k->channel, 0, NULL, 0);
		return;
	}
	k->shut = true;
	connection_flush(k);
}

void connection_send_error(struct conn *k, int error, const char *text)
{
	struct msg_error e = { .error = error };

	connection_send(k, MSG_ERROR, &e, sizeof(e), text, strlen(text));
}

static void connection_refuse(struct conn *k, int error, const char *text)
{
	log_warn("pid %d: %s", (int)k->dialer, text);
	connection_send_error(k, error, text);
	connection_close(k);
}

static void connection_challenge(struct conn *k, const struct msg_auth_hello *hello)
{
	const uint8_t *key = k->network ? k->c->network_key : k->c->key;
	struct msg_auth_challenge challenge;

	randombytes_buf(challenge.nonce, sizeof(challenge.nonce));
	protocol_auth_mac(key, 'S', hello->nonce, challenge.nonce, challenge.mac);
	protocol_auth_mac(key, 'C', hello->nonce, challenge.nonce, k->proof);
	if (k->network && tunnel_begin(k, hello->nonce, challenge.nonce, true) < 0) {
		connection_broken(k);
		return;
	}
	connection_become(k, CONN_PROOF);
	connection_send(k, MSG_AUTH_CHALLENGE, &challenge, sizeof(challenge), NULL, 0);
}

static void connection_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length)
{
	struct msg_register reg;
	struct msg_auth_hello hello;

	if (k->state == CONN_HELLO && type == MSG_AUTH_HELLO) {
		memcpy(&hello, data, sizeof(hello));
		connection_challenge(k, &hello);
	} else if (k->state == CONN_PROOF && type == MSG_AUTH_PROOF) {
		if (sodium_memcmp(data, k->proof, PROTOCOL_MAC_SIZE))
			connection_refuse(k, -EACCES, "wrong job key");
		else
			connection_become(k, k->network ? CONN_TUNNEL : CONN_OPEN);
	} else if (k->state == CONN_HELLO || k->state == CONN_PROOF) {
		connection_refuse(k, -EPROTO, "message before the job's key was proved");
	} else if (type == MSG_REGISTER && k->state != CONN_COMMAND) {
		decode_register(data, length, &reg);
		member_register(k, &reg);
	} else if (k->state == CONN_MEMBER) {
		member_message(k, type, data, length);
	} else {
		command_message(k, type, data, length);
	}
}

/* One message from the front of the buffer: its size, 0 when it has not come whole, -errno. */
static ssize_t connection_take(struct conn *k, const uint8_t *at, size_t have)
{
	bool proved = k->state != CONN_HELLO && k->state != CONN_PROOF;
	struct msg_header h;
	int r;

	if (k->state == CONN_TUNNEL)
		return tunnel_take(k, at, have);
	if (proved && k->c->options->relay) {
		relay_forward(k, at, have);
		return (ssize_t)have;
	}
	if (have < sizeof(h))
		return 0;
	r = decode_header(at, &h);
	if (r == 0 && !proved && h.length > CONNECTION_PROOF_MAX)
		r = -EPROTO;
	if (r < 0)
		return r;
	if (have - sizeof(h) < h.length)
		return 0;
	r = decode_message(h.type, at + sizeof(h), h.length);
	if (r == -EOPNOTSUPP)
		log_warn("pid %d: message of unknown type %u skipped", (int)k->sender, h.type);
	else if (r < 0)
		return r;
	else
		connection_message(k, h.type, at + sizeof(h), h.length);
	return (ssize_t)(sizeof(h) + h.length);
}

static void connection_parse(struct conn *k)
{
	size_t at = 0;
	ssize_t n = 0;

	while (k->state != CONN_CLOSED && (n = connection_take(k, k->in + at, k->in_len - at)) > 0)
		at += (size_t)n;
	if (k->state == CONN_CLOSED)
		return;
	if (n < 0) {
		connection_refuse(k, (int)n, n == -EPROTONOSUPPORT ? "another version of the protocol: the programs of "
				  "a job must use one version of fermata" : "damaged message");
		return;
	}
	memmove(k->in, k->in + at, k->in_len - at);
	k->in_len -= at;
	if (!k->in_len) {
		free(k->in);
		k->in = NULL;
		k->in_size = 0;
	}
}

static ssize_t connection_read(struct conn *k)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec v = { k->in + k->in_len, k->in_size - k->in_len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(k->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); n && h; h = CMSG_NXTHDR(&m, h)) {
		struct ucred cred;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&cred, CMSG_DATA(h), sizeof(cred));
		k->sender = cred.pid;
	}
	return n;
}

static bool connection_room(struct conn *k, size_t room)
{
	size_t size = k->in_size ? k->in_size * 2 : CONNECTION_READ;
	uint8_t *in;

	if (k->in_size - k->in_len >= room)
		return true;
	size = size < k->in_len + room ? k->in_len + room : size;
	in = realloc(k->in, size);
	if (!in)
		return false;
	k->in = in;
	k->in_size = size;
	return true;
}

static void connection_event(uv_poll_t *poll, int status, int events)
{
	struct conn *k = poll->data;
	ssize_t n;

	if (events & UV_WRITABLE) {
		connection_flush(k);
		connection_watch(k);
	}
	if (status == 0 && !(events & UV_READABLE))
		return;
	/* An error on the socket: libuv has stopped watching, so what is left to read is read now, and then it is the end. */
	do {
		n = connection_room(k, 1) ? connection_read(k) : -ENOMEM;
		if (n == -EINTR || (n == -EAGAIN && status == 0))
			continue;
		if (n <= 0) {
			k->error = (int)n;
			connection_close(k);
			return;
		}
		k->in_len += (size_t)n;
		connection_parse(k);
	} while (status != 0 && k->state != CONN_CLOSED);
}

void connection_feed(struct conn *k, const uint8_t *data, size_t len)
{
	if (!connection_room(k, len)) {
		connection_close(k);
		return;
	}
	memcpy(k->in + k->in_len, data, len);
	k->in_len += len;
	connection_parse(k);
}

static void connection_add(struct conn *k)
{
	k->uv.poll.data = k;
	if (connection_is_half_open(k, k->state))
		k->c->half_open++;
	k->c->conn_count++;
	k->c->arrivals++;
	list_add_tail(&k->c->conns, &k->node);
}

struct conn *connection_make(struct coordinator *c, int fd, enum conn_state state, bool network)
{
	struct conn *k = calloc(1, sizeof(*k));

	if (!k || uv_poll_init(&c->loop, &k->uv.poll, fd) < 0) {
		free(k);
		return NULL;
	}
	k->c = c;
	k->fd = fd;
	k->state = state;
	k->network = network;
	connection_add(k);
	connection_watch(k);
	return k;
}

struct conn *connection_make_relayed(struct conn *relay, uint32_t channel, pid_t dialer)
{
	struct conn *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->c = relay->c;
	k->fd = -EBADF;
	k->state = CONN_OPEN;
	k->relay = relay;
	k->channel = channel;
	k->dialer = k->sender = dialer;
	uv_timer_init(&k->c->loop, &k->uv.timer);
	connection_add(k);
	return k;
}
