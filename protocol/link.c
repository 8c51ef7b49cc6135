/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's end of a connection to a coordinator: dial, mutual proof of the job's key, whole messages. Owns the
 * descriptor and one receive buffer a link; no state of libc, so the checkpoint thread may use it.
 *
 * Invariants: buf holds the header and then the payload of the message under way, @have bytes of them have come; so a
 * receive that times out in mid-message goes on where it was. A payload starts at buf + 16 in a page-aligned mapping.
 *
 *   dial:  connect(2) only. The far side sees a connection from that moment on: that is what keeps a phase open while
 *          a fork is under way.
 *   open:  -> AUTH_HELLO nonce   <- AUTH_CHALLENGE nonce, mac("S")   -> AUTH_PROOF mac("C")
 *
 * No locks: one thread at a time.
 */
#include "protocol/link.h"

#include <errno.h>
#include <poll.h>
#include <sodium/crypto_verify_32.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/macro.h"
#include "base/sys.h"
#include "protocol/auth.h"

#define HEADER_SIZE sizeof(struct msg_header)
#define BUFFER_MIN 16384u
#define HANDSHAKE_TIMEOUT_MS 30000

int link_dial(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	int fd, r;

	if (len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, len + 1);
	fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	do {
		r = (int)RAW3(SYS_connect, fd, &address, sizeof(address));
	} while (r == -EINTR);
	if (r < 0) {
		raw_close(fd);
		return r;
	}
	return fd;
}

void link_close(struct link *l)
{
	if (l->fd >= 0)
		raw_close(l->fd);
	if (l->buf)
		raw_munmap(l->buf, l->buf_size);
	*l = (struct link){ .fd = -EBADF };
}

static int link_grow(struct link *l, size_t need)
{
	size_t size = ALIGN_UP(need < BUFFER_MIN ? BUFFER_MIN : need, (size_t)FM_PAGE_SIZE);
	uint8_t *buf;

	if (need <= l->buf_size)
		return 0;
	buf = raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_is_error(buf))
		return -ENOMEM;
	if (l->buf) {
		memcpy(buf, l->buf, l->have);
		raw_munmap(l->buf, l->buf_size);
	}
	l->buf = buf;
	l->buf_size = size;
	return 0;
}

static int link_lost(long r)
{
	return r == 0 || r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN ? -ECONNRESET : (int)r;
}

static int link_send_parts(struct link *l, struct iovec *v, size_t count)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = count };

	while (m.msg_iovlen) {
		long r = RAW3(SYS_sendmsg, l->fd, &m, MSG_NOSIGNAL);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return link_lost(r);
		while (m.msg_iovlen && (size_t)r >= m.msg_iov->iov_len) {
			r -= (long)m.msg_iov->iov_len;
			m.msg_iov++;
			m.msg_iovlen--;
		}
		if (m.msg_iovlen) {
			m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + r;
			m.msg_iov->iov_len -= (size_t)r;
		}
	}
	return 0;
}

int link_send2(struct link *l, uint16_t type, const void *a, size_t alen, const void *b, size_t blen)
{
	struct msg_header h = { .magic = PROTOCOL_MAGIC, .type = type, .version = PROTOCOL_VERSION };
	struct iovec v[3] = { { &h, sizeof(h) }, { (void *)a, alen }, { (void *)b, blen } };

	if (l->fd < 0)
		return -ECONNRESET;
	if (alen > PROTOCOL_LENGTH_MAX || blen > PROTOCOL_LENGTH_MAX - alen)
		return -EMSGSIZE;
	h.length = (uint32_t)(alen + blen);
	return link_send_parts(l, v, ARRAY_SIZE(v));
}

int link_send(struct link *l, uint16_t type, const void *data, size_t len)
{
	return link_send2(l, type, data, len, NULL, 0);
}

/* Waits until the descriptor is readable or @deadline_ns (0: for ever) is over. */
static int link_wait(struct link *l, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	long wait_ms = -1, r;

	if (deadline_ns) {
		uint64_t now = raw_now_ns();

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		wait_ms = (long)((deadline_ns - now + 999999u) / 1000000u);
	}
	r = RAW3(SYS_poll, &p, 1, wait_ms);
	return r < 0 && r != -EINTR ? (int)r : 0;
}

/* Goes on until @want bytes of the message are in the buffer. */
static int link_fill(struct link *l, size_t want, uint64_t deadline_ns)
{
	int r = link_grow(l, want);

	while (!r && l->have < want) {
		long n = RAW6(SYS_recvfrom, l->fd, l->buf + l->have, want - l->have, MSG_DONTWAIT, 0, 0);

		if (n > 0)
			l->have += (size_t)n;
		else if (n == -EAGAIN)
			r = link_wait(l, deadline_ns);
		else if (n != -EINTR)
			r = link_lost(n);
	}
	return r;
}

int link_receive(struct link *l, struct link_message *ret, int timeout_ms)
{
	uint64_t deadline = timeout_ms < 0 ? 0 : raw_now_ns() + (uint64_t)timeout_ms * 1000000u;
	struct msg_header h;
	int r;

	if (l->fd < 0)
		return -ECONNRESET;
	r = link_fill(l, HEADER_SIZE, deadline);
	if (r < 0)
		return r;
	memcpy(&h, l->buf, sizeof(h));
	if (h.magic != PROTOCOL_MAGIC || h.reserved || h.length > PROTOCOL_LENGTH_MAX)
		return -EPROTO;
	/* A refusal is understood in any version: it says why the versions do not go together. */
	if (h.version != PROTOCOL_VERSION && h.type != MSG_ERROR)
		return -EPROTO;
	r = link_fill(l, HEADER_SIZE + h.length, deadline);
	if (r < 0)
		return r;
	l->have = 0;
	*ret = (struct link_message){ .type = h.type, .length = h.length, .data = l->buf + HEADER_SIZE };
	return 0;
}

static int link_random(uint8_t *out, size_t n)
{
	while (n) {
		long r = RAW3(SYS_getrandom, out, n, 0);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return (int)r;
		out += r;
		n -= (size_t)r;
	}
	return 0;
}

static int link_take_challenge(struct link *l, const struct msg_auth_hello *hello,
			       const uint8_t key[PROTOCOL_KEY_SIZE], struct msg_auth_challenge *ret)
{
	uint8_t mac[PROTOCOL_MAC_SIZE];
	struct link_message m;
	int r = link_receive(l, &m, HANDSHAKE_TIMEOUT_MS);

	if (r < 0)
		return r;
	if (m.type == MSG_ERROR && m.length >= sizeof(struct msg_error)) {
		int32_t error;

		memcpy(&error, m.data, sizeof(error));
		return error < 0 && error > -4096 ? error : -EPROTO;
	}
	if (m.type != MSG_AUTH_CHALLENGE || m.length < sizeof(*ret))
		return -EPROTO;
	memcpy(ret, m.data, sizeof(*ret));
	protocol_auth_mac(key, 'S', hello->nonce, ret->nonce, mac);
	return crypto_verify_32(mac, ret->mac) ? -EACCES : 0;
}

int link_open_nonces(struct link *l, int fd, const uint8_t key[PROTOCOL_KEY_SIZE], uint8_t ret_client[PROTOCOL_NONCE_SIZE],
		     uint8_t ret_server[PROTOCOL_NONCE_SIZE])
{
	struct msg_auth_challenge challenge;
	struct msg_auth_hello hello;
	struct msg_auth_proof proof;
	int r;

	*l = (struct link){ .fd = fd };
	r = link_random(hello.nonce, sizeof(hello.nonce));
	if (r == 0)
		r = link_send(l, MSG_AUTH_HELLO, &hello, sizeof(hello));
	if (r == 0)
		r = link_take_challenge(l, &hello, key, &challenge);
	if (r == 0) {
		protocol_auth_mac(key, 'C', hello.nonce, challenge.nonce, proof.mac);
		r = link_send(l, MSG_AUTH_PROOF, &proof, sizeof(proof));
	}
	if (r < 0) {
		link_close(l);
		return r;
	}
	memcpy(ret_client, hello.nonce, PROTOCOL_NONCE_SIZE);
	memcpy(ret_server, challenge.nonce, PROTOCOL_NONCE_SIZE);
	return 0;
}

int link_open(struct link *l, int fd, const uint8_t key[PROTOCOL_KEY_SIZE])
{
	uint8_t client[PROTOCOL_NONCE_SIZE], server[PROTOCOL_NONCE_SIZE];

	return link_open_nonces(l, fd, key, client, server);
}

int link_read_key(const char *path, uint8_t ret_key[PROTOCOL_KEY_SIZE])
{
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	r = (int)RAW2(SYS_fstat, fd, &st);
	if (r == 0 && (!S_ISREG(st.st_mode) || (st.st_mode & 077) || st.st_uid != (uid_t)RAW0(SYS_geteuid)))
		r = -EPERM;
	if (r == 0 && st.st_size != PROTOCOL_KEY_SIZE)
		r = -EINVAL;
	if (r == 0)
		r = raw_read_all(fd, ret_key, PROTOCOL_KEY_SIZE);
	raw_close(fd);
	return r;
}
