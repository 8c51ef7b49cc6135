/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pure checks of received messages: what they accept can be read by the structs of message.h without a further bound
 * check. No state, no libc beyond mem*.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/message.h"

#define PROTOCOL_NAME_KEY_MAX 64u
#define PROTOCOL_NAME_VALUE_MAX 1024u

/* -EPROTO: no header of ours; -EPROTONOSUPPORT: of another version. */
int decode_header(const void *bytes, struct msg_header *ret);

/* Length and inner structure of any message. -EPROTO: damaged; -EOPNOTSUPP: a type that is not known, to be skipped. */
int decode_message(uint16_t type, const void *data, size_t length);

struct decode_name {
	uint16_t kind, key_length, value_length;
	const uint8_t *key, *value;
};

struct decode_names {
	const uint8_t *data;
	size_t length, at;
	uint32_t left, flags; /* flags: MSG_NAMES_* */
};

/* Walks the entries of a MSG_NAMES or MSG_NAMES_REPLY: 1 with an entry, 0 at the end, -EPROTO. */
int decode_names_begin(struct decode_names *it, const void *data, size_t length);
int decode_names_next(struct decode_names *it, struct decode_name *ret);

/* The bytes that an entry takes. */
size_t encode_name_size(size_t key_length, size_t value_length);
/* Writes one entry of encode_name_size() bytes. */
void encode_name(void *at, uint16_t kind, const void *key, uint16_t key_length, const void *value,
		 uint16_t value_length);

/* Of a sender that does not know the fields at its end: these are 0. */
void decode_register(const void *data, size_t length, struct msg_register *ret);

struct decode_done {
	struct msg_phase_done head;
	const uint8_t *children; /* head.children times a little-endian uint32_t, unaligned */
	const char *text;	 /* head.text_length bytes, no NUL */
};

int decode_phase_done(const void *data, size_t length, struct decode_done *ret);
