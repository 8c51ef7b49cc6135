/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of many connections over one, between a coordinator and the relay of another host. Owns struct tunnel.
 *
 *   frames    OPEN, DATA, CLOSE .. of channels (tunnel.h), one stream each way, in order
 *   records   the stream is cut into records, each encrypted and authenticated (XSalsa20-Poly1305) under the key of its direction; the number of
 *             the record is the nonce, so that none can be left out, sent twice or in another order
 *
 * Frames that are sent in one turn of the loop are sealed together, at its end: a phase that goes to a thousand processes of a host is some ten
 * records. A channel's number is a slot and a generation: one that is used again never gets what was meant for its predecessor.
 */
#include "coordinator/tunnel.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "coordinator/internal.h"
#include "protocol/auth.h"

#define RECORD_MAX 65536u /* bytes in clear */
#define SLOT_BITS 16u
#define SLOT_MASK ((1u << SLOT_BITS) - 1)

int tunnel_begin(struct conn *k, const uint8_t nonce_client[PROTOCOL_NONCE_SIZE], const uint8_t nonce_server[PROTOCOL_NONCE_SIZE], bool server)
{
	struct tunnel *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	/* The proofs' letters are others: a key is never on the wire. */
	protocol_auth_mac(k->c->network_key, 'U', nonce_client, nonce_server, server ? t->key_in : t->key_out);
	protocol_auth_mac(k->c->network_key, 'D', nonce_client, nonce_server, server ? t->key_out : t->key_in);
	k->tunnel = t;
	return 0;
}

void tunnel_free(struct tunnel *t)
{
	if (!t)
		return;
	bytes_free(&t->out);
	bytes_free(&t->in);
	free(t->channels);
	sodium_memzero(t, sizeof(*t));
	free(t);
}

/* ---- channels ---- */

static bool tunnel_room(struct tunnel *t, uint32_t slot)
{
	uint32_t count = t->channel_count ? t->channel_count : 16;
	struct conn **channels;

	while (count <= slot)
		count *= 2;
	if (count == t->channel_count)
		return true;
	channels = reallocarray(t->channels, count, sizeof(*channels));
	if (!channels)
		return false;
	memset(channels + t->channel_count, 0, (count - t->channel_count) * sizeof(*channels));
	t->channels = channels;
	t->channel_count = count;
	return true;
}

uint32_t tunnel_channel_new(struct conn *k, struct conn *channel)
{
	struct tunnel *t = k->tunnel;
	uint32_t slot = 1;

	while (slot < t->channel_count && t->channels[slot])
		slot++;
	if (slot > SLOT_MASK || !tunnel_room(t, slot))
		return 0;
	t->channels[slot] = channel;
	return t->generation++ << SLOT_BITS | slot;
}

int tunnel_channel_set(struct conn *k, uint32_t number, struct conn *channel)
{
	struct tunnel *t = k->tunnel;
	uint32_t slot = number & SLOT_MASK;

	if (!slot || (channel && slot < t->channel_count && t->channels[slot]))
		return -EPROTO;
	if (!tunnel_room(t, slot))
		return -ENOMEM;
	t->channels[slot] = channel;
	return 0;
}

struct conn *tunnel_channel(const struct conn *k, uint32_t number)
{
	const struct tunnel *t = k->tunnel;
	uint32_t slot = number & SLOT_MASK;
	struct conn *channel = slot < t->channel_count ? t->channels[slot] : NULL;

	return channel && channel->channel == number ? channel : NULL;
}

/* ---- out ---- */

void tunnel_send(struct conn *k, uint16_t kind, uint32_t channel, uint32_t value, const void *data, size_t len)
{
	const uint8_t *at = data;

	if (k->state != CONN_TUNNEL)
		return;
	do {
		size_t part = len < TUNNEL_DATA_MAX ? len : TUNNEL_DATA_MAX;
		struct tunnel_frame f = { .channel = channel, .kind = kind, .value = value, .length = (uint32_t)part };

		if (!bytes_add(&k->tunnel->out, &f, sizeof(f)) || !bytes_add(&k->tunnel->out, at, part)) {
			connection_broken(k);
			return;
		}
		at += part;
		len -= part;
	} while (len);
}

static void tunnel_nonce(uint64_t number, uint8_t ret[crypto_secretbox_NONCEBYTES])
{
	memset(ret, 0, crypto_secretbox_NONCEBYTES);
	memcpy(ret, &number, sizeof(number));
}

static void tunnel_seal(struct conn *k)
{
	uint8_t nonce[crypto_secretbox_NONCEBYTES], record[sizeof(uint32_t) + RECORD_MAX + crypto_secretbox_MACBYTES];
	struct tunnel *t = k->tunnel;

	while (t->out.at < t->out.len) {
		size_t part = t->out.len - t->out.at < RECORD_MAX ? t->out.len - t->out.at : RECORD_MAX;
		uint32_t length = (uint32_t)(part + crypto_secretbox_MACBYTES);

		tunnel_nonce(t->sealed++, nonce);
		memcpy(record, &length, sizeof(length));
		crypto_secretbox_easy(record + sizeof(length), t->out.data + t->out.at, part, nonce, t->key_out);
		connection_put(k, record, sizeof(length) + length);
		t->out.at += part;
	}
	bytes_free(&t->out);
}

void tunnel_flush_all(uv_prepare_t *flush)
{
	struct coordinator *c = container_of(flush, struct coordinator, flush);
	struct conn *k;

	list_each(k, &c->conns, node)
		if (k->state == CONN_TUNNEL && k->tunnel->out.len)
			tunnel_seal(k);
}

/* ---- in ---- */

static void tunnel_frames(struct conn *k)
{
	struct tunnel *t = k->tunnel;
	struct tunnel_frame f;

	while (k->state == CONN_TUNNEL && t->in.len - t->in.at >= sizeof(f)) {
		const uint8_t *at = t->in.data + t->in.at;

		memcpy(&f, at, sizeof(f));
		if (f.length > TUNNEL_DATA_MAX || f.reserved) {
			connection_broken(k);
			return;
		}
		if (t->in.len - t->in.at - sizeof(f) < f.length)
			break;
		t->in.at += sizeof(f) + f.length;
		if (k->c->options->relay)
			relay_frame(k, &f, at + sizeof(f));
		else
			relayed_frame(k, &f, at + sizeof(f));
	}
	if (t->in.at == t->in.len)
		bytes_free(&t->in);
}

ssize_t tunnel_take(struct conn *k, const uint8_t *at, size_t have)
{
	uint8_t nonce[crypto_secretbox_NONCEBYTES], clear[RECORD_MAX];
	struct tunnel *t = k->tunnel;
	uint32_t length;

	if (have < sizeof(length))
		return 0;
	memcpy(&length, at, sizeof(length));
	if (length <= crypto_secretbox_MACBYTES || length > RECORD_MAX + crypto_secretbox_MACBYTES)
		return -EPROTO;
	if (have - sizeof(length) < length)
		return 0;
	tunnel_nonce(t->opened++, nonce);
	if (crypto_secretbox_open_easy(clear, at + sizeof(length), length, nonce, t->key_in))
		return -EPROTO;
	if (!bytes_add(&t->in, clear, length - crypto_secretbox_MACBYTES))
		return -ENOMEM;
	tunnel_frames(k);
	return (ssize_t)(sizeof(length) + length);
}
