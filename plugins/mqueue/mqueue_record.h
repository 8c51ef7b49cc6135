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

#include <stdint.h>

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
