/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One authenticated connection to a coordinator, without libc state, for the agent; commands use it too. Blocking, for one
 * thread at a time. All answer 0 or -errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/message.h"

struct link {
	int fd; /* -EBADF: none. Close-on-exec. */
	uint8_t *buf; /* header and payload of the last received message; raw mmap, grown as needed */
	size_t buf_size;
	size_t have; /* bytes of the message under way: a receive that timed out goes on there */
};

struct link_message {
	uint16_t type;
	uint32_t length;
	const uint8_t *data; /* valid until the next receive on this link; aligned to 16 */
};

/* Connects to the unix socket @path only; no bytes are sent. The descriptor, or -errno. */
int link_dial(const char *path);
/* Proves the key on a dialled descriptor, both ways. -EACCES: wrong key. Takes @fd over, also on failure. */
int link_open(struct link *l, int fd, const uint8_t key[PROTOCOL_KEY_SIZE]);
/* As link_open, and gives back both nonces, of which further keys can be made. */
int link_open_nonces(struct link *l, int fd, const uint8_t key[PROTOCOL_KEY_SIZE], uint8_t ret_client[PROTOCOL_NONCE_SIZE],
		     uint8_t ret_server[PROTOCOL_NONCE_SIZE]);
void link_close(struct link *l);
int link_send(struct link *l, uint16_t type, const void *data, size_t len);
/* As link_send with the payload in two parts. */
int link_send2(struct link *l, uint16_t type, const void *a, size_t alen, const void *b, size_t blen);
/* Waits @timeout_ms (-1: for ever). -ETIMEDOUT; -ECONNRESET: the other side is gone; -EPROTO: damaged message. */
int link_receive(struct link *l, struct link_message *ret, int timeout_ms);
/* Reads the 32-byte key from a file that only its owner can read. */
int link_read_key(const char *path, uint8_t ret_key[PROTOCOL_KEY_SIZE]);
