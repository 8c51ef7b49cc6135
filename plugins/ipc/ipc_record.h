/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the image holds of System V semaphores and message queues. Little-endian.
 *
 *   struct ipc_record
 *   struct ipc_entry, its bytes		as often as there are some
 *
 * A set or a queue is in the record of one process of the job only. `fermata restart` makes them (cli/restart_ipc.c); the adjustments are the agents'.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IPC_RECORD_VERSION 1

struct ipc_record {
	uint32_t version;
	uint32_t reserved;
};

enum ipc_entry_kind {
	IPC_ENTRY_SET = 1, /* struct ipc_set, then its semaphores: struct ipc_semaphore */
	IPC_ENTRY_QUEUE = 2, /* struct ipc_queue, then its messages: struct ipc_message, its text, padded to 8 bytes */
	IPC_ENTRY_UNDO = 3, /* struct ipc_adjustment array: of this process (SEM_UNDO) */
	IPC_ENTRY_TOUCH = 4, /* struct ipc_adjustment array, without values: semaphores that this process was the last to change, where processes have adjustments */
};

struct ipc_entry {
	uint32_t kind;
	uint32_t length; /* bytes that follow; a multiple of 8 */
};

struct ipc_owner { /* struct ipc_perm */
	int32_t id, key;
	uint32_t mode, uid, gid, cuid, cgid;
	uint32_t reserved;
};

struct ipc_set {
	struct ipc_owner owner;
	uint32_t count, reserved;
};

struct ipc_semaphore {
	int32_t value;
	int32_t pid; /* sempid */
};

struct ipc_queue {
	struct ipc_owner owner;
	uint64_t limit; /* msg_qbytes */
	int32_t lspid, lrpid;
	uint32_t count, reserved; /* messages */
};

struct ipc_message {
	uint64_t length; /* of its text */
	int64_t type;
};

struct ipc_adjustment {
	int32_t id;
	uint16_t number;
	int16_t value;
};
_Static_assert(sizeof(struct ipc_record) == 8, "ipc_record");
_Static_assert(sizeof(struct ipc_entry) == 8, "ipc_record");
_Static_assert(sizeof(struct ipc_set) == 40, "ipc_record");
_Static_assert(sizeof(struct ipc_semaphore) == 8, "ipc_record");
_Static_assert(sizeof(struct ipc_queue) == 56, "ipc_record");
_Static_assert(sizeof(struct ipc_message) == 16, "ipc_record");
_Static_assert(sizeof(struct ipc_adjustment) == 8, "ipc_record");

/* ---- decoding: the record comes from a file. Once a record is whole nobody who walks through it has to check sizes ---- */

static inline const struct ipc_entry *ipc_entry_after(const struct ipc_entry *e)
{
	return (const void *)((const char *)(e + 1) + e->length);
}

/* Of a message that is whole. */
static inline const struct ipc_message *ipc_message_after(const struct ipc_message *m)
{
	return (const void *)((const char *)(m + 1) + (m->length + 7) / 8 * 8);
}

static inline bool ipc_queue_is_whole(const struct ipc_queue *q, size_t length)
{
	const struct ipc_message *m = (const void *)(q + 1);
	size_t left = length - sizeof(*q), size;

	if (length < sizeof(*q))
		return false;
	for (uint32_t i = 0; i < q->count; i++, m = ipc_message_after(m)) {
		if (left < sizeof(*m) || m->length > left - sizeof(*m))
			return false;
		size = sizeof(*m) + (m->length + 7) / 8 * 8;
		if (size > left)
			return false;
		left -= size;
	}
	return true;
}

static inline bool ipc_entry_is_whole(const struct ipc_entry *e, size_t left)
{
	const struct ipc_set *s = (const void *)(e + 1);

	if (left < sizeof(*e) || e->length % 8 || e->length > left - sizeof(*e))
		return false;
	if (e->kind == IPC_ENTRY_QUEUE)
		return ipc_queue_is_whole((const void *)(e + 1), e->length);
	return e->kind != IPC_ENTRY_SET ||
	       (e->length >= sizeof(*s) && (e->length - sizeof(*s)) / sizeof(struct ipc_semaphore) >= s->count);
}

/* The first entry of a record, the one after @e, or NULL: there is none. */
static inline const struct ipc_entry *ipc_record_next(const void *record, size_t length, const struct ipc_entry *e)
{
	const char *end = (const char *)record + length;

	e = e ? ipc_entry_after(e) : (const void *)((const struct ipc_record *)record + 1);
	return (const char *)e < end ? e : NULL;
}

/* No record at all is whole, too. 8-aligned. */
static inline bool ipc_record_is_whole(const void *record, size_t length)
{
	const struct ipc_record *head = record;
	const struct ipc_entry *e = NULL;

	if (!length)
		return true;
	if (length < sizeof(*head) || head->version != IPC_RECORD_VERSION)
		return false;
	while ((e = ipc_record_next(record, length, e)))
		if (!ipc_entry_is_whole(e, (size_t)((const char *)record + length - (const char *)e)))
			return false;
	return true;
}
