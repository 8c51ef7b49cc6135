/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections: accept, the proof of the job's key, whole messages in, queued bytes out. Owns every struct conn; the
 * loop's handle inside it lives until its close callback, so a closed connection is freed there and nowhere else.
 *
 * Invariants: a message reaches member.c or command.c only after the key was proved and decode_message() took it.
 * half_open counts the connections in CONN_HELLO, CONN_PROOF and CONN_OPEN: each may be a process that is being created.
 * A send never closes: an error shuts the socket down, and the loop then sees its end.
 */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"
#include "protocol/auth.h"

#define CONNECTION_READ 65536u
#define CONNECTION_PROOF_MAX 4096u /* bytes of a message from somebody who has not proved the key */

static bool connection_is_half_open(enum conn_state s)
{
	return s == CONN_HELLO || s == CONN_PROOF || s == CONN_OPEN;
}

void connection_become(struct conn *k, enum conn_state state)
{
	if (connection_is_half_open(k->state) && !connection_is_half_open(state))
		k->c->half_open--;
	k->state = state;
}

static void connection_incoming(uv_poll_t *poll, int status, int events);

static void connection_free(uv_handle_t *handle)
{
	struct conn *k = container_of((uv_poll_t *)handle, struct conn, poll);

	free(k->in);
	free(k->out);
	free(k);
}

void connection_close(struct conn *k)
{
	struct coordinator *c = k->c;

	if (k->state == CONN_CLOSED)
		return;
	connection_become(k, CONN_CLOSED);
	list_del(&k->node);
	c->conn_count--;
	uv_poll_stop(&k->poll);
	uv_close((uv_handle_t *)&k->poll, connection_free);
	close(k->fd);
	if (c->accept_blocked && c->state != STATE_ENDING) {
		c->accept_blocked = false;
		uv_poll_start(&c->listener, UV_READABLE, connection_incoming);
	}
	if (k->member) {
		struct member *m = k->member;

		k->member = NULL;
		member_remove(m);
	}
	if (k->wait == WAIT_RESTART && !c->restart_over)
		conduct_fail(c, -ECANCELED, "fermata restart was ended before its processes were restored");
	conduct_check(c);
	run_check_leave(c);
}

static void connection_event(uv_poll_t *poll, int status, int events);

static void connection_watch(struct conn *k)
{
	uv_poll_start(&k->poll, UV_READABLE | (k->out_len > k->out_at ? UV_WRITABLE : 0), connection_event);
}

static void connection_broken(struct conn *k)
{
	k->out_at = k->out_len = 0;
	shutdown(k->fd, SHUT_RDWR);
}

static void connection_flush(struct conn *k)
{
	while (k->out_at < k->out_len) {
		ssize_t n = send(k->fd, k->out + k->out_at, k->out_len - k->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			connection_broken(k);
			return;
		}
		k->out_at += (size_t)n;
	}
	free(k->out);
	k->out = NULL;
	k->out_at = k->out_len = k->out_size = 0;
}

static bool connection_queue(struct conn *k, const void *data, size_t len)
{
	if (k->out_len + len > k->out_size) {
		size_t size = (k->out_len + len) * 2;
		uint8_t *out = realloc(k->out, size);

		if (!out)
			return false;
		k->out = out;
		k->out_size = size;
	}
	if (len)
		memcpy(k->out + k->out_len, data, len);
	k->out_len += len;
	return true;
}

void connection_send(struct conn *k, uint16_t type, const void *a, size_t alen, const void *b, size_t blen)
{
	struct msg_header h = { .magic = PROTOCOL_MAGIC, .type = type, .version = PROTOCOL_VERSION,
				.length = (uint32_t)(alen + blen) };

	if (k->state == CONN_CLOSED)
		return;
	if (!connection_queue(k, &h, sizeof(h)) || !connection_queue(k, a, alen) || !connection_queue(k, b, blen)) {
		log_error("pid %d: no memory for a message", (int)k->sender);
		connection_broken(k);
		return;
	}
	connection_flush(k);
	if (k->out_len)
		connection_watch(k);
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
	struct msg_auth_challenge challenge;

	randombytes_buf(challenge.nonce, sizeof(challenge.nonce));
	protocol_auth_mac(k->c->key, 'S', hello->nonce, challenge.nonce, challenge.mac);
	protocol_auth_mac(k->c->key, 'C', hello->nonce, challenge.nonce, k->proof);
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
			connection_become(k, CONN_OPEN);
	} else if (k->state == CONN_HELLO || k->state == CONN_PROOF) {
		connection_refuse(k, -EPROTO, "message before the job's key was proved");
	} else if (type == MSG_REGISTER && k->state != CONN_COMMAND) {
		memcpy(&reg, data, sizeof(reg));
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

static bool connection_room(struct conn *k)
{
	size_t size = k->in_size ? k->in_size * 2 : CONNECTION_READ;
	uint8_t *in;

	if (k->in_len < k->in_size)
		return true;
	in = realloc(k->in, size);
	if (!in)
		return false;
	k->in = in;
	k->in_size = size;
	return true;
}

static void connection_event(uv_poll_t *poll, int status, int events)
{
	struct conn *k = container_of(poll, struct conn, poll);
	ssize_t n;

	if (events & UV_WRITABLE) {
		connection_flush(k);
		connection_watch(k);
	}
	if (status == 0 && !(events & UV_READABLE))
		return;
	/* An error on the socket: libuv has stopped watching, so what is left to read is read now, and then it is the end. */
	do {
		n = connection_room(k) ? connection_read(k) : -ENOMEM;
		if (n == -EINTR || (n == -EAGAIN && status == 0))
			continue;
		if (n <= 0) {
			connection_close(k);
			return;
		}
		k->in_len += (size_t)n;
		connection_parse(k);
	} while (status != 0 && k->state != CONN_CLOSED);
}

static int connection_accept(struct coordinator *c)
{
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct conn *k;

	if (fd < 0)
		return -errno;
	k = calloc(1, sizeof(*k));
	if (!k || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 ||
	    uv_poll_init(&c->loop, &k->poll, fd) < 0) {
		free(k);
		close(fd);
		return -ENOMEM;
	}
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	k->c = c;
	k->fd = fd;
	k->dialer = k->sender = cred.pid;
	k->state = CONN_HELLO;
	c->half_open++;
	c->conn_count++;
	list_add_tail(&c->conns, &k->node);
	connection_watch(k);
	return 0;
}

static void connection_incoming(uv_poll_t *poll, int status, int events)
{
	connection_accept_all(container_of(poll, struct coordinator, listener));
}

/* Out of descriptors: those that wait are accepted when others have gone. */
static void connection_block(struct coordinator *c, int error)
{
	if (!c->accept_blocked)
		log_error("a connection could not be accepted: %s; raise the limit of open files (ulimit -n)", strerror(-error));
	c->accept_blocked = true;
	uv_poll_stop(&c->listener);
}

bool connection_accept_all(struct coordinator *c)
{
	int r;

	do {
		r = connection_accept(c);
	} while (r == 0 || r == -EINTR || r == -ECONNABORTED);
	if (r != -EAGAIN)
		connection_block(c, r);
	return r == -EAGAIN;
}

int connection_listen(struct coordinator *c)
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
	return uv_poll_start(&c->listener, UV_READABLE, connection_incoming);
}
