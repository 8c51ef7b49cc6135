/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks of received messages, one table of the shortest length a type may have, and one function for each that has an
 * inner structure. Owns nothing. Every length is compared by subtraction from what is left, so that none can wrap.
 */
#include "protocol/decode.h"

#include <errno.h>
#include <string.h>

#include "base/macro.h"

int decode_header(const void *bytes, struct msg_header *ret)
{
	struct msg_header h;

	memcpy(&h, bytes, sizeof(h));
	if (h.magic != PROTOCOL_MAGIC || h.length > PROTOCOL_LENGTH_MAX || h.reserved)
		return -EPROTO;
	if (h.version != PROTOCOL_VERSION && h.type != MSG_ERROR)
		return -EPROTONOSUPPORT;
	*ret = h;
	return 0;
}

size_t encode_name_size(size_t key_length, size_t value_length)
{
	return ALIGN_UP(sizeof(struct msg_name) + key_length + value_length, (size_t)8);
}

void encode_name(void *at, uint16_t kind, const void *key, uint16_t key_length, const void *value,
		 uint16_t value_length)
{
	struct msg_name n = { .kind = kind, .key_length = key_length, .value_length = value_length };
	size_t size = encode_name_size(key_length, value_length);
	uint8_t *p = at;

	memset(p + size - 8, 0, 8);
	memcpy(p, &n, sizeof(n));
	memcpy(p + sizeof(n), key, key_length);
	if (value_length)
		memcpy(p + sizeof(n) + key_length, value, value_length);
}

int decode_names_begin(struct decode_names *it, const void *data, size_t length)
{
	struct msg_names head;

	if (length < sizeof(head))
		return -EPROTO;
	memcpy(&head, data, sizeof(head));
	*it = (struct decode_names){ .data = data, .length = length, .at = sizeof(head), .left = head.count, .flags = head.flags };
	return 0;
}

int decode_names_next(struct decode_names *it, struct decode_name *ret)
{
	size_t room = it->length - it->at, need;
	struct msg_name n;

	if (!it->left)
		return 0;
	if (room < sizeof(n))
		return -EPROTO;
	memcpy(&n, it->data + it->at, sizeof(n));
	need = sizeof(n) + n.key_length + n.value_length;
	if (n.kind < MSG_NAME_PUBLISH || n.kind > MSG_NAME_JOB_ASK)
		return -EPROTO;
	if (!n.key_length || n.key_length > PROTOCOL_NAME_KEY_MAX || n.value_length > PROTOCOL_NAME_VALUE_MAX ||
	    need > room)
		return -EPROTO;
	*ret = (struct decode_name){ n.kind, n.key_length, n.value_length, it->data + it->at + sizeof(n),
				     it->data + it->at + sizeof(n) + n.key_length };
	/* The last entry need not be padded. */
	need = encode_name_size(n.key_length, n.value_length);
	it->at += need < room ? need : room;
	it->left--;
	return 1;
}

static int decode_names_check(const void *data, size_t length)
{
	struct decode_names it;
	struct decode_name n;
	int r = decode_names_begin(&it, data, length);

	while (r == 0 && (r = decode_names_next(&it, &n)) > 0)
		r = 0;
	return r;
}

int decode_phase_done(const void *data, size_t length, struct decode_done *ret)
{
	size_t left;

	if (length < sizeof(ret->head))
		return -EPROTO;
	memcpy(&ret->head, data, sizeof(ret->head));
	left = length - sizeof(ret->head);
	if (ret->head.text_length > left)
		return -EPROTO;
	left -= ret->head.text_length;
	if (ret->head.children > left / sizeof(uint32_t))
		return -EPROTO;
	ret->text = (const char *)data + sizeof(ret->head);
	ret->children = (const uint8_t *)ret->text + ret->head.text_length;
	return 0;
}

static int decode_text(const char *field, size_t size)
{
	return memchr(field, 0, size) ? 0 : -EPROTO;
}

void decode_register(const void *data, size_t length, struct msg_register *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, data, length < sizeof(*ret) ? length : sizeof(*ret));
}

static int decode_register_check(const struct msg_register *m)
{
	if (!m->pid || decode_text(m->comm, sizeof(m->comm)) || decode_text(m->host, sizeof(m->host)) ||
	    decode_text(m->exe, sizeof(m->exe)))
		return -EPROTO;
	return 0;
}

static int decode_welcome_check(const struct msg_welcome *m)
{
	if (decode_text(m->compress, sizeof(m->compress)) || decode_text(m->rdma, sizeof(m->rdma)) ||
	    decode_text(m->job, sizeof(m->job)))
		return -EPROTO;
	return 0;
}

static int decode_phase_check(const struct msg_phase *m)
{
	if (decode_text(m->directory, sizeof(m->directory)) || decode_text(m->name, sizeof(m->name)))
		return -EPROTO;
	return 0;
}

/* Parts of @a and @b bytes follow a struct of @head bytes. */
static int decode_parts(size_t length, size_t head, uint32_t a, uint32_t b)
{
	size_t left = length - head;

	return a > left || b > left - a ? -EPROTO : 0;
}

#define SHORTEST_NONE UINT32_MAX

static uint32_t decode_shortest(uint16_t type)
{
	switch (type) {
	case MSG_AUTH_HELLO: return sizeof(struct msg_auth_hello);
	case MSG_AUTH_CHALLENGE: return sizeof(struct msg_auth_challenge);
	case MSG_AUTH_PROOF: return sizeof(struct msg_auth_proof);
	case MSG_ERROR: return sizeof(struct msg_error);
	case MSG_REGISTER: return offsetof(struct msg_register, part); /* agents in images may be older */
	case MSG_WELCOME: return sizeof(struct msg_welcome);
	case MSG_PHASE: return offsetof(struct msg_phase, text);
	case MSG_PHASE_DONE: return sizeof(struct msg_phase_done);
	case MSG_NAMES:
	case MSG_NAMES_REPLY: return sizeof(struct msg_names);
	case MSG_PROGRESS: return sizeof(struct msg_progress);
	case MSG_CHECKPOINT: return sizeof(struct msg_checkpoint);
	case MSG_CHECKPOINT_RESULT: return sizeof(struct msg_checkpoint_result);
	case MSG_CHECKPOINT_PROGRESS: return sizeof(struct msg_checkpoint_progress);
	case MSG_RESTART_RESULT: return sizeof(struct msg_restart_result);
	case MSG_WATCH: return sizeof(struct msg_watch);
	case MSG_ENDING: return sizeof(struct msg_ending);
	case MSG_EXITING:
	case MSG_ENDED:
	case MSG_STATUS:
	case MSG_STATUS_REPLY:
	case MSG_QUIT:
	case MSG_WAIT_RESTART:
	case MSG_FAILED:
	case MSG_LISTEN:
	case MSG_LISTENING: return 0;
	default: return SHORTEST_NONE;
	}
}

int decode_message(uint16_t type, const void *data, size_t length)
{
	uint32_t shortest = decode_shortest(type);
	union {
		struct msg_register reg;
		struct msg_welcome welcome;
		struct msg_phase phase;
		struct msg_checkpoint_result checkpoint;
		struct msg_restart_result restart;
		struct msg_ending ending;
	} m;
	struct decode_done done;

	if (shortest == SHORTEST_NONE)
		return -EOPNOTSUPP;
	if (length < shortest || length > PROTOCOL_LENGTH_MAX)
		return -EPROTO;
	if (shortest <= sizeof(m) && shortest)
		memcpy(&m, data, shortest);
	switch (type) {
	case MSG_REGISTER: return decode_register_check(&m.reg);
	case MSG_WELCOME: return decode_welcome_check(&m.welcome);
	case MSG_PHASE: return decode_phase_check(&m.phase);
	case MSG_PHASE_DONE: return decode_phase_done(data, length, &done);
	case MSG_NAMES:
	case MSG_NAMES_REPLY: return decode_names_check(data, length);
	case MSG_CHECKPOINT_RESULT:
		return decode_parts(length, sizeof(m.checkpoint), m.checkpoint.path_length, m.checkpoint.text_length);
	case MSG_RESTART_RESULT: return decode_parts(length, sizeof(m.restart), m.restart.text_length, 0);
	case MSG_ENDING: return decode_parts(length, sizeof(m.ending), m.ending.text_length, 0);
	default: return 0;
	}
}
