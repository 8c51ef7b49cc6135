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
