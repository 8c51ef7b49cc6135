/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection between the stand-in and the command's parent: frames, encrypted and authenticated, as they would have been on ssh's own way
 * (libsodium's secretstream; a key for each direction, made of the token). What a checkpoint needs of it is its memory and the socket.
 *
 *     each side first: the header of its stream, 24 bytes; then  u32 length | length bytes: type (u8), data, sealed
 *
 * Owns the socket, and what is on its way in either direction. Both sides take whatever comes at once (remote_pump.c bounds what that can be), so the
 * socket is never full for long.
 */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cli/remote.h"

#define SEALED_MAX (REMOTE_FRAME_MAX + 1 + crypto_secretstream_xchacha20poly1305_ABYTES)
#define HEADER crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define OUT_SIZE (4 * (SEALED_MAX + 4))
#define IN_SIZE (2 * (SEALED_MAX + 4))

enum { SUBKEY_STAND_IN = 1, SUBKEY_COMMAND = 2, SUBKEY_PROOF = 3 };

struct remote_channel {
	int fd;
	bool begun; /* the other side's header has come */
	uint8_t pull_key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
	crypto_secretstream_xchacha20poly1305_state push, pull;
	size_t out_have, in_start, in_have;
	uint8_t out[OUT_SIZE], in[IN_SIZE], plain[REMOTE_FRAME_MAX + 1];
};

static void channel_key(const uint8_t token[REMOTE_TOKEN_SIZE], uint64_t which, uint8_t *ret, size_t size)
{
	_Static_assert(REMOTE_TOKEN_SIZE == crypto_kdf_KEYBYTES, "the token is the key of keys");
	crypto_kdf_derive_from_key(ret, size, which, "fmremote", token);
}

void remote_channel_proof(const uint8_t token[REMOTE_TOKEN_SIZE], uint8_t ret[REMOTE_PROOF_SIZE])
{
	channel_key(token, SUBKEY_PROOF, ret, REMOTE_PROOF_SIZE);
}

struct remote_channel *remote_channel_make(int fd, const uint8_t token[REMOTE_TOKEN_SIZE], bool stand_in)
{
	uint8_t push_key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
	struct remote_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->fd = fd;
	channel_key(token, stand_in ? SUBKEY_STAND_IN : SUBKEY_COMMAND, push_key, sizeof(push_key));
	channel_key(token, stand_in ? SUBKEY_COMMAND : SUBKEY_STAND_IN, c->pull_key, sizeof(c->pull_key));
	crypto_secretstream_xchacha20poly1305_init_push(&c->push, c->out, push_key);
	c->out_have = HEADER;
	return c;
}

bool remote_channel_has_room(const struct remote_channel *c)
{
	return c->out_have + 2 * (SEALED_MAX + 4) <= OUT_SIZE;
}

void remote_channel_put(struct remote_channel *c, unsigned int type, const void *data, size_t len)
{
	uint8_t plain[REMOTE_FRAME_MAX + 1];
	unsigned long long sealed = 0;
	uint32_t length;

	if (c->out_have + len + SEALED_MAX - REMOTE_FRAME_MAX + 4 > OUT_SIZE)
		abort(); /* who puts a frame asks for room */
	plain[0] = (uint8_t)type;
	if (len)
		memcpy(plain + 1, data, len);
	crypto_secretstream_xchacha20poly1305_push(&c->push, c->out + c->out_have + 4, &sealed, plain, len + 1, NULL, 0, 0);
	length = (uint32_t)sealed;
	memcpy(c->out + c->out_have, &length, sizeof(length));
	c->out_have += 4 + length;
}

short remote_channel_events(const struct remote_channel *c)
{
	return (short)(POLLIN | (c->out_have ? POLLOUT : 0));
}

int remote_channel_fd(const struct remote_channel *c)
{
	return c->fd;
}

bool remote_channel_is_flushed(const struct remote_channel *c)
{
	return !c->out_have;
}

static int channel_send(struct remote_channel *c)
{
	ssize_t n;

	if (!c->out_have)
		return 0;
	n = send(c->fd, c->out, c->out_have, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->out_have -= (size_t)n;
	memmove(c->out, c->out + n, c->out_have);
	return 0;
}

static int channel_receive(struct remote_channel *c)
{
	ssize_t n;

	memmove(c->in, c->in + c->in_start, c->in_have);
	c->in_start = 0;
	if (c->in_have == IN_SIZE)
		return 0;
	n = recv(c->fd, c->in + c->in_have, IN_SIZE - c->in_have, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->in_have += (size_t)n;
	return n ? 0 : -ECONNRESET;
}

int remote_channel_move(struct remote_channel *c)
{
	int sent = channel_send(c), received = channel_receive(c);

	/* What came before the end counts, also when nothing can be sent any more. */
	return received ? received : c->in_have ? 0 : sent;
}

static int channel_begin(struct remote_channel *c)
{
	if (c->in_have < HEADER)
		return 0;
	if (crypto_secretstream_xchacha20poly1305_init_pull(&c->pull, c->in + c->in_start, c->pull_key))
		return -EPROTO;
	c->in_start += HEADER;
	c->in_have -= HEADER;
	c->begun = true;
	return 1;
}

int remote_channel_next(struct remote_channel *c, unsigned int *ret_type, const uint8_t **ret_data, size_t *ret_len)
{
	unsigned long long len;
	uint8_t tag;
	uint32_t length;
	int r = c->begun ? 1 : channel_begin(c);

	if (r <= 0 || c->in_have < sizeof(length))
		return r < 0 ? r : 0;
	memcpy(&length, c->in + c->in_start, sizeof(length));
	if (length > SEALED_MAX || length < 1 + crypto_secretstream_xchacha20poly1305_ABYTES)
		return -EPROTO;
	if (c->in_have < 4 + length)
		return 0;
	if (crypto_secretstream_xchacha20poly1305_pull(&c->pull, c->plain, &len, &tag, c->in + c->in_start + 4, length, NULL, 0))
		return -EPROTO;
	c->in_start += 4 + length;
	c->in_have -= 4 + length;
	*ret_type = c->plain[0];
	*ret_data = c->plain + 1;
	*ret_len = (size_t)len - 1;
	return 1;
}
