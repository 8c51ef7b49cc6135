/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the image holds of POSIX message queues. Little-endian. The process' own record has the queues that it saves for the job:
 *
 *   struct mqueue_record
 *   struct mqueue_queue, then its messages in the order in which they are received: struct mqueue_message, its text, padded to 8 bytes
 *   ..
 *
 * That of a description is struct mqueue_fd.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MQUEUE_RECORD_VERSION 1
#define MQUEUE_NAME_MAX 256 /* without its slash */

struct mqueue_record {
	uint32_t version;
	uint32_t count; /* of queues */
};

enum {
	MQUEUE_UNLINKED = 1, /* has no name any more; the name is one that the restart gives it for a while */
};

struct mqueue_queue {
	char name[MQUEUE_NAME_MAX];
	uint32_t mode, uid, gid, flags;
	int64_t capacity, message_size; /* mq_maxmsg, mq_msgsize */
	uint32_t count, reserved;	/* messages */
	uint64_t length;		/* bytes of them, which follow */
};

struct mqueue_message {
	uint32_t priority;
	uint32_t length;
};

struct mqueue_fd {
	uint32_t version;
	uint32_t access; /* O_RDONLY, O_WRONLY or O_RDWR */
	char name[MQUEUE_NAME_MAX];
};
_Static_assert(sizeof(struct mqueue_queue) == 304, "mqueue_record");
_Static_assert(sizeof(struct mqueue_message) == 8, "mqueue_record");
_Static_assert(sizeof(struct mqueue_fd) == 264, "mqueue_record");

/* ---- decoding: the record comes from a file. Once it is whole nobody who walks through it has to check sizes ---- */

static inline size_t mqueue_padded(uint32_t length)
{
	return ((size_t)length + 7) / 8 * 8;
}

/* Of a message that is whole. */
static inline const struct mqueue_message *mqueue_message_after(const struct mqueue_message *m)
{
	return (const void *)((const char *)(m + 1) + mqueue_padded(m->length));
}

/* Of a queue that is whole. */
static inline const struct mqueue_queue *mqueue_queue_after(const struct mqueue_queue *q)
{
	return (const void *)((const char *)(q + 1) + q->length);
}

static inline bool mqueue_queue_is_whole(const struct mqueue_queue *q, size_t left)
{
	const struct mqueue_message *m = (const void *)(q + 1);
	size_t room;

	if (left < sizeof(*q) || q->length > left - sizeof(*q) || q->length % 8 || !memchr(q->name, 0, sizeof(q->name)))
		return false;
	room = q->length;
	for (uint32_t i = 0; i < q->count; i++, m = mqueue_message_after(m)) {
		if (room < sizeof(*m) || mqueue_padded(m->length) > room - sizeof(*m))
			return false;
		room -= sizeof(*m) + mqueue_padded(m->length);
	}
	return true;
}

/* No record at all is whole, too. 8-aligned. */
static inline bool mqueue_record_is_whole(const void *record, size_t length)
{
	const struct mqueue_record *head = record;
	const struct mqueue_queue *q = (const void *)(head + 1);

	if (!length)
		return true;
	if (length < sizeof(*head) || head->version != MQUEUE_RECORD_VERSION)
		return false;
	for (uint32_t i = 0; i < head->count; i++, q = mqueue_queue_after(q))
		if (!mqueue_queue_is_whole(q, (size_t)((const char *)record + length - (const char *)q)))
			return false;
	return true;
}

static inline bool mqueue_fd_is_whole(const void *record, size_t length)
{
	const struct mqueue_fd *f = record;

	return length >= sizeof(*f) && f->version == MQUEUE_RECORD_VERSION && memchr(f->name, 0, sizeof(f->name));
}
