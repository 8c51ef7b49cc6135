/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's side of the name service. Owns two things, both touched by the checkpoint thread only: the entries to be sent, in wire form, at the end of this phase or when they are many (the
 * coordinator takes them in while more are made), and the entries that have come back, in a table hashed by key. Values of one key
 * keep the order in which they came; a later reply replaces those of an earlier one. Names of the host and of the job never meet, here and at the
 * coordinator, which knows of which host we are (host.c).
 *
 * A key may have the whole job's values; who needs them in another order sorts them where they are. So each has its place at the end noted, and where it was last looked at: whoever goes through them in their order takes one
 * step for each.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#define NAMES_MANY (64u << 10) /* bytes */

struct value {
	struct value *next;
	uint16_t length;
	uint8_t bytes[] __attribute__((aligned(8)));
};

struct key {
	struct key *next; /* same bucket */
	struct value *first, *last, *looked;
	uint32_t reply; /* the one that they came with */
	uint32_t looked_index;
	uint16_t length;
	bool job; /* of the whole job, not of the host */
	bool sorted;
	uint8_t bytes[];
};

static struct {
	uint8_t *out; /* struct msg_names, entries */
	size_t out_length, out_room;
	struct key **buckets;
	uint32_t bucket_count, count, reply;
	bool more; /* of the reply is to come */
} names;

static uint32_t hash(bool job, const uint8_t *key, size_t n)
{
	uint32_t h = 2166136261u ^ job; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ key[i]) * 16777619u;
	return h;
}

int names_send(void)
{
	int r;

	if (!names.out_length)
		return 0;
	((struct msg_names *)names.out)->flags = MSG_NAMES_IN_PIECES;
	r = link_send(&agent.link, MSG_NAMES, names.out, names.out_length);
	memset(names.out, 0, sizeof(struct msg_names));
	names.out_length = 0;
	return r;
}

static int send_many(void)
{
	int r;

	lock_acquire(&agent.link_lock);
	r = names_send();
	lock_release(&agent.link_lock);
	return r ? fermata_fail(r, "process %u cannot send names to the coordinator (errno %d)", agent.pid, -r) : 0;
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
	return end < NAMES_MANY ? 0 : send_many();
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

static struct key **bucket_of(bool job, const void *key, size_t len)
{
	return &names.buckets[hash(job, key, len) & (names.bucket_count - 1)];
}

static int grow(void)
{
	uint32_t old_count = names.bucket_count;
	struct key **old = names.buckets, **b;

	if (names.count * 2 < old_count)
		return 0;
	b = arena_alloc(&agent_arena, (old_count ? old_count * 2 : 64) * sizeof(*b));
	if (!b)
		return -ENOMEM;
	names.buckets = b;
	names.bucket_count = old_count ? old_count * 2 : 64;
	for (uint32_t i = 0; i < old_count; i++)
		for (struct key *k = old[i], *next; k; k = next) {
			struct key **in = bucket_of(k->job, k->bytes, k->length);

			next = k->next;
			k->next = *in;
			*in = k;
		}
	arena_free(&agent_arena, old);
	return 0;
}

static struct key *find(bool job, const void *key, size_t len)
{
	struct key *k = names.bucket_count ? *bucket_of(job, key, len) : NULL;

	while (k && (k->job != job || k->length != len || memcmp(k->bytes, key, len) != 0))
		k = k->next;
	return k;
}

static struct key *add(bool job, const uint8_t *key, uint16_t len)
{
	struct key *k = grow() ? NULL : arena_alloc(&agent_arena, sizeof(*k) + len), **in;

	if (!k)
		return NULL;
	in = bucket_of(job, key, len);
	k->job = job;
	k->length = len;
	memcpy(k->bytes, key, len);
	k->next = *in;
	*in = k;
	names.count++;
	return k;
}

static void values_drop(struct key *k)
{
	for (struct value *v = k->first, *next; v; v = next) {
		next = v->next;
		arena_free(&agent_arena, v);
	}
	k->first = k->last = k->looked = NULL;
}

static int take_one(const struct msg_name *e, const uint8_t *bytes)
{
	const bool job = e->kind == MSG_NAME_JOB_PUBLISH;
	struct value *v = arena_alloc(&agent_arena, sizeof(*v) + e->value_length);
	struct key *k = find(job, bytes, e->key_length);

	if (v && !k)
		k = add(job, bytes, e->key_length);
	if (!v || !k) {
		arena_free(&agent_arena, v);
		return -ENOMEM;
	}
	v->length = e->value_length;
	memcpy(v->bytes, bytes + e->key_length, e->value_length);
	if (k->reply != names.reply)
		values_drop(k);
	k->reply = names.reply;
	*(k->last ? &k->last->next : &k->first) = v;
	k->last = v;
	k->sorted = false;
	return 0;
}

int names_take(const struct link_message *m)
{
	const struct msg_names *head = (const void *)m->data;
	size_t at = sizeof(*head);
	int r = 0;

	if (m->length < sizeof(*head))
		return -EPROTO;
	names.reply += !names.more;
	names.more = head->flags & MSG_NAMES_MORE;
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
	struct key *k = find(job, key, keylen);

	if (!k)
		return NULL;
	if (!k->looked || index < k->looked_index) {
		k->looked = k->first;
		k->looked_index = 0;
	}
	while (k->looked && k->looked_index < index) {
		k->looked = k->looked->next;
		k->looked_index++;
	}
	if (!k->looked)
		return NULL;
	*ret_len = k->looked->length;
	return k->looked->bytes;
}

static struct value *merge(struct value *a, struct value *b, names_compare_fn compare)
{
	struct value *first = NULL, **to = &first;

	while (a && b) {
		struct value **from = compare(a->bytes, b->bytes) <= 0 ? &a : &b;

		*to = *from;
		to = &(*from)->next;
		*from = *to;
	}
	*to = a ? a : b;
	return first;
}

/* The first @n of @list; @ret_rest: what follows these. */
static struct value *sort(struct value *list, uint32_t n, struct value **ret_rest, names_compare_fn compare)
{
	struct value *half, *rest;

	if (n == 1) {
		*ret_rest = list->next;
		list->next = NULL;
		return list;
	}
	half = sort(list, n / 2, &rest, compare);
	return merge(half, sort(rest, n - n / 2, ret_rest, compare), compare);
}

void names_sort(const void *key, size_t keylen, names_compare_fn compare)
{
	struct key *k = find(false, key, keylen);
	struct value *none;
	uint32_t n = 0;

	if (!k || k->sorted || !k->first)
		return;
	for (const struct value *v = k->first; v; v = v->next)
		n++;
	k->first = sort(k->first, n, &none, compare);
	for (k->last = k->first; k->last->next; k->last = k->last->next)
		;
	k->looked = NULL;
	k->sorted = true;
}

const void *fermata_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(false, key, keylen, index, ret_len);
}

const void *fermata_job_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(true, key, keylen, index, ret_len);
}

void names_clear(void)
{
	for (uint32_t i = 0; i < names.bucket_count; i++)
		for (struct key *k = names.buckets[i], *next; k; k = next) {
			next = k->next;
			values_drop(k);
			arena_free(&agent_arena, k);
		}
	arena_free(&agent_arena, names.buckets);
	arena_free(&agent_arena, names.out);
	memset(&names, 0, sizeof(names));
}
