/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's side of the name service. Owns two things, both touched by the checkpoint thread only (but in a program that is begun after a restart:
 * fermata_names_kept): the entries to be sent at the
 * end of this phase, in wire form, and the entries that have come back, in a table hashed by key. Values of one key
 * keep the order in which they came; a later reply replaces those of an earlier one. Names of the host and of the job never meet, here and at the
 * coordinator, which knows of which host we are (host.c).
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

struct name {
	struct name *next; /* same bucket */
	uint32_t reply;	   /* the one that it came with */
	uint16_t key_length, value_length;
	bool job; /* of the whole job, not of the host */
	uint8_t bytes[]; /* key, padding to 8, value */
};

static struct {
	uint8_t *out; /* struct msg_names, entries */
	size_t out_length, out_room;
	struct name **buckets;
	uint32_t bucket_count, count, reply;
} names;

static uint32_t hash(bool job, const uint8_t *key, size_t n)
{
	uint32_t h = 2166136261u ^ job; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ key[i]) * 16777619u;
	return h;
}

static int entry(uint16_t kind, const void *key, size_t keylen, const void *value, size_t len)
{
	struct msg_name e = { .kind = kind, .key_length = (uint16_t)keylen, .value_length = (uint16_t)len };
	size_t start = names.out_length ? names.out_length : sizeof(struct msg_names);
	size_t end = ALIGN_UP(start + sizeof(e) + keylen + len, (size_t)8);

	if (keylen > 64 || len > 1024)
		return fermata_fail(-EINVAL, "a name of %zu bytes with a value of %zu is too long", keylen, len);
	if (end > names.out_room) {
		size_t room = ALIGN_UP(end * 2, (size_t)4096);
		uint8_t *more = arena_realloc(&agent_arena, names.out, room);

		if (!more)
			return fermata_fail(-ENOMEM, "no memory for %zu bytes of names", room);
		names.out = more;
		names.out_room = room;
	}
	memset(names.out + names.out_length, 0, end - names.out_length);
	memcpy(names.out + start, &e, sizeof(e));
	memcpy(names.out + start + sizeof(e), key, keylen);
	if (len)
		memcpy(names.out + start + sizeof(e) + keylen, value, len);
	names.out_length = end;
	((struct msg_names *)names.out)->count++;
	return 0;
}

int fermata_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return entry(MSG_NAME_PUBLISH, key, keylen, value, len);
}

int fermata_ask(const void *key, size_t keylen)
{
	return entry(MSG_NAME_ASK, key, keylen, NULL, 0);
}

int fermata_job_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return entry(MSG_NAME_JOB_PUBLISH, key, keylen, value, len);
}

int fermata_job_ask(const void *key, size_t keylen)
{
	return entry(MSG_NAME_JOB_ASK, key, keylen, NULL, 0);
}

int names_send(void)
{
	int r;

	if (!names.out_length)
		return 0;
	r = link_send(&agent.link, MSG_NAMES, names.out, names.out_length);
	memset(names.out, 0, sizeof(struct msg_names));
	names.out_length = 0;
	return r;
}

static int grow(uint32_t more)
{
	uint32_t want = 64;
	struct name **b;

	while (want < (names.count + more) * 2)
		want *= 2;
	if (want <= names.bucket_count)
		return 0;
	b = arena_alloc(&agent_arena, want * sizeof(*b));
	if (!b)
		return -ENOMEM;
	for (uint32_t i = 0; i < names.bucket_count; i++)
		for (struct name *n = names.buckets[i], *next; n; n = next) {
			struct name **tail = &b[hash(n->job, n->bytes, n->key_length) & (want - 1)];

			next = n->next;
			n->next = NULL;
			while (*tail)
				tail = &(*tail)->next;
			*tail = n;
		}
	arena_free(&agent_arena, names.buckets);
	names.buckets = b;
	names.bucket_count = want;
	return 0;
}

static int take_one(const struct msg_name *e, const uint8_t *key)
{
	size_t value_at = ALIGN_UP((size_t)e->key_length, (size_t)8);
	struct name *n = arena_alloc(&agent_arena, sizeof(*n) + value_at + e->value_length);
	struct name **tail;

	if (!n)
		return -ENOMEM;
	n->reply = names.reply;
	n->job = e->kind == MSG_NAME_JOB_PUBLISH;
	n->key_length = e->key_length;
	n->value_length = e->value_length;
	memcpy(n->bytes, key, e->key_length);
	memcpy(n->bytes + value_at, key + e->key_length, e->value_length);
	tail = &names.buckets[hash(n->job, n->bytes, n->key_length) & (names.bucket_count - 1)];
	while (*tail) {
		struct name *old = *tail;

		if (old->reply == names.reply || old->job != n->job || old->key_length != n->key_length ||
		    memcmp(old->bytes, n->bytes, n->key_length)) {
			tail = &old->next;
			continue;
		}
		*tail = old->next;
		arena_free(&agent_arena, old);
		names.count--;
	}
	*tail = n;
	names.count++;
	return 0;
}

int names_take(const struct link_message *m)
{
	const struct msg_names *head = (const void *)m->data;
	size_t at = sizeof(*head);
	int r;

	if (m->length < sizeof(*head))
		return -EPROTO;
	names.reply++;
	r = grow(head->count);
	for (uint32_t i = 0; !r && i < head->count; i++) {
		struct msg_name e;

		if (m->length - at < sizeof(e))
			return -EPROTO;
		memcpy(&e, m->data + at, sizeof(e));
		at += sizeof(e);
		if (m->length - at < (size_t)e.key_length + e.value_length)
			return -EPROTO;
		r = take_one(&e, m->data + at);
		at = ALIGN_UP(at + e.key_length + e.value_length, (size_t)8);
	}
	return r;
}

static const void *resolve(bool job, const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	struct name *n;

	if (!names.bucket_count)
		return NULL;
	n = names.buckets[hash(job, key, keylen) & (names.bucket_count - 1)];
	for (; n; n = n->next) {
		if (n->job != job || n->key_length != keylen || memcmp(n->bytes, key, keylen) || index--)
			continue;
		*ret_len = n->value_length;
		return n->bytes + ALIGN_UP((size_t)n->key_length, (size_t)8);
	}
	return NULL;
}

const void *fermata_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(false, key, keylen, index, ret_len);
}

const void *fermata_job_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(true, key, keylen, index, ret_len);
}

int names_each_job(const char *prefix, int (*fn)(const void *key, size_t keylen, const void *value, size_t len, void *arg), void *arg)
{
	size_t begins = strlen(prefix);
	int r = 0;

	for (uint32_t i = 0; i < names.bucket_count; i++)
		for (struct name *n = names.buckets[i]; n && !r; n = n->next)
			if (n->job && n->key_length >= begins && !memcmp(n->bytes, prefix, begins))
				r = fn(n->bytes, n->key_length, n->bytes + ALIGN_UP((size_t)n->key_length, (size_t)8), n->value_length, arg);
	return r;
}

void names_clear(void)
{
	for (uint32_t i = 0; i < names.bucket_count; i++)
		for (struct name *n = names.buckets[i], *next; n; n = next) {
			next = n->next;
			arena_free(&agent_arena, n);
		}
	arena_free(&agent_arena, names.buckets);
	arena_free(&agent_arena, names.out);
	memset(&names, 0, sizeof(names));
}
