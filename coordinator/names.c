/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The name service: a multimap from key to values, filled by MSG_NAMES, answered with one MSG_NAMES_REPLY a member when the
 * phase in which it asked is closed. Everything lies in chunks that are dropped together when the job resumes. Lookups are by
 * hash; an answer costs what it carries.
 *
 * A key is of one host (member.scope), or of the job: what two hosts publish under the same bytes never meets but where both say that they mean the job.
 *
 * Invariant: a reply holds all the values of a key, once, however often the member asked for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "coordinator/internal.h"

#define NAMES_CHUNK (96u * 1024) /* more than any key or value, and less than what malloc has a mapping of its own for */
#define NAMES_JOB UINT32_MAX
#define NAMES_PIECE (1u << 20) /* of a reply, in a frame: several entries at least */

struct name_chunk {
	struct name_chunk *next;
	size_t used;
	uint8_t bytes[] __attribute__((aligned(16)));
};

struct name_value {
	struct name_value *next;
	uint16_t length;
	uint8_t bytes[];
};

struct name_key {
	struct name_key *next;
	struct name_value *first, **last;
	uint64_t hash, total; /* total: bytes that the key's entries take in a reply */
	uint32_t count, answered_to; /* answered_to: number of the member whose reply has it already */
	uint32_t scope; /* NAMES_JOB, or a host's number */
	uint16_t length;
	uint8_t bytes[];
};

struct name_ask {
	struct name_ask *next;
	struct name_key *key;
};

static void *names_alloc(struct names *n, size_t size)
{
	struct name_chunk *chunk = n->chunks;
	void *p;

	size = ALIGN_UP(size, (size_t)16);
	if (!chunk || chunk->used + size > NAMES_CHUNK) {
		chunk = malloc(sizeof(*chunk) + NAMES_CHUNK);
		if (!chunk)
			return NULL;
		chunk->next = n->chunks;
		chunk->used = 0;
		n->chunks = chunk;
	}
	p = chunk->bytes + chunk->used;
	chunk->used += size;
	return p;
}

static uint64_t names_hash(uint32_t scope, const uint8_t *key, size_t len)
{
	uint64_t h = 0xcbf29ce484222325u ^ scope;

	for (size_t i = 0; i < len; i++)
		h = (h ^ key[i]) * 0x100000001b3u;
	return h ^ (h >> 29);
}

static int names_grow(struct names *n)
{
	size_t count = n->bucket_count ? n->bucket_count * 2 : 1024;
	struct name_key **buckets;

	if (n->key_count < n->bucket_count)
		return 0;
	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;
	for (size_t i = 0; i < n->bucket_count; i++) {
		struct name_key *next;

		for (struct name_key *k = n->buckets[i]; k; k = next) {
			next = k->next;
			k->next = buckets[k->hash & (count - 1)];
			buckets[k->hash & (count - 1)] = k;
		}
	}
	free(n->buckets);
	n->buckets = buckets;
	n->bucket_count = count;
	return 0;
}

static struct name_key *names_key(struct names *n, uint32_t scope, const uint8_t *key, uint16_t length)
{
	uint64_t hash = names_hash(scope, key, length);
	struct name_key *k;

	if (names_grow(n) < 0)
		return NULL;
	for (k = n->buckets[hash & (n->bucket_count - 1)]; k; k = k->next)
		if (k->hash == hash && k->scope == scope && k->length == length && !memcmp(k->bytes, key, length))
			return k;
	k = names_alloc(n, sizeof(*k) + length);
	if (!k)
		return NULL;
	*k = (struct name_key){ .hash = hash, .scope = scope, .length = length, .answered_to = UINT32_MAX };
	k->last = &k->first;
	memcpy(k->bytes, key, length);
	k->next = n->buckets[hash & (n->bucket_count - 1)];
	n->buckets[hash & (n->bucket_count - 1)] = k;
	n->key_count++;
	return k;
}

static int names_publish(struct names *n, struct name_key *k, const uint8_t *value, uint16_t length)
{
	struct name_value *v = names_alloc(n, sizeof(*v) + length);

	if (!v)
		return -ENOMEM;
	v->next = NULL;
	v->length = length;
	memcpy(v->bytes, value, length);
	*k->last = v;
	k->last = &v->next;
	k->count++;
	k->total += encode_name_size(k->length, length);
	return 0;
}

static int names_ask(struct names *n, struct member *m, struct name_key *k)
{
	struct name_ask *ask = names_alloc(n, sizeof(*ask));

	if (!ask)
		return -ENOMEM;
	*ask = (struct name_ask){ .next = m->asks, .key = k };
	m->asks = ask;
	return 0;
}

int names_add(struct coordinator *c, struct member *m, const uint8_t *data, size_t length)
{
	struct decode_names it;
	struct decode_name entry;
	int r = decode_names_begin(&it, data, length);

	m->names_in_pieces = r == 0 && it.flags & MSG_NAMES_IN_PIECES;
	while (r == 0 && (r = decode_names_next(&it, &entry)) > 0) {
		bool job = entry.kind == MSG_NAME_JOB_PUBLISH || entry.kind == MSG_NAME_JOB_ASK;
		struct name_key *k = names_key(&c->names, job ? NAMES_JOB : m->scope, entry.key, entry.key_length);

		if (!k)
			return -ENOMEM;
		if (entry.kind == MSG_NAME_PUBLISH || entry.kind == MSG_NAME_JOB_PUBLISH)
			r = names_publish(&c->names, k, entry.value, entry.value_length);
		else
			r = names_ask(&c->names, m, k);
	}
	return r;
}

int names_each(struct coordinator *c, int (*take)(void *arg, const uint8_t *key, size_t length, const uint8_t *value, size_t value_length), void *arg)
{
	int r = 0;

	for (size_t i = 0; i < c->names.bucket_count; i++)
		for (const struct name_key *k = c->names.buckets[i]; k && !r; k = k->next)
			for (const struct name_value *v = k->first; v && !r && k->scope != NAMES_JOB; v = v->next)
				r = take(arg, k->bytes, k->length, v->bytes, v->length);
	return r;
}

/* A reply on its way: frames of up to @room bytes of entries. */
struct reply {
	struct member *to;
	uint8_t *bytes;
	size_t room, used;
	uint32_t count;
};

static void reply_send(struct reply *r, uint32_t flags)
{
	struct msg_names head = { r->count, flags };

	connection_send(r->to->conn, MSG_NAMES_REPLY, &head, sizeof(head), r->bytes, r->used);
	r->used = r->count = 0;
}

static void reply_put(struct reply *r, const struct name_key *k)
{
	uint16_t kind = k->scope == NAMES_JOB ? MSG_NAME_JOB_PUBLISH : MSG_NAME_PUBLISH;

	for (const struct name_value *v = k->first; v; v = v->next) {
		size_t size = encode_name_size(k->length, v->length);

		if (r->used + size > r->room)
			reply_send(r, MSG_NAMES_MORE);
		encode_name(r->bytes + r->used, kind, k->bytes, k->length, v->bytes, v->length);
		r->used += size;
		r->count++;
	}
}

static int names_answer_member(struct member *m)
{
	struct name_ask *asks = NULL, *next;
	struct reply reply = { .to = m };
	uint64_t size = 0;

	/* Keeps one ask a key. */
	for (struct name_ask *a = m->asks; a; a = next) {
		next = a->next;
		if (a->key->answered_to == m->number)
			continue;
		a->key->answered_to = m->number;
		size += a->key->total;
		a->next = asks;
		asks = a;
	}
	m->asks = NULL;
	reply.room = m->names_in_pieces && size > NAMES_PIECE ? NAMES_PIECE : size;
	if (reply.room + sizeof(struct msg_names) > PROTOCOL_LENGTH_MAX)
		return -EMSGSIZE;
	reply.bytes = malloc(reply.room + 1);
	if (!reply.bytes)
		return -ENOMEM;
	for (; asks; asks = asks->next) {
		reply_put(&reply, asks->key);
		asks->key->answered_to = UINT32_MAX;
	}
	reply_send(&reply, 0);
	free(reply.bytes);
	return 0;
}

int names_answer(struct coordinator *c)
{
	struct member *m;
	int r = 0;

	list_each(m, &c->members, node)
		if (m->asks && !r)
			r = names_answer_member(m);
	return r;
}

void names_forget(struct member *m)
{
	m->asks = NULL;
}

void names_clear(struct coordinator *c)
{
	struct name_chunk *next;
	struct member *m;

	list_each(m, &c->members, node)
		m->asks = NULL;
	for (struct name_chunk *chunk = c->names.chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(c->names.buckets);
	c->names = (struct names){ 0 };
}
