/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the records of POSIX message queues, which a restart reads from images. What the check takes is walked through to its last byte as a restart does it.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/mqueue/mqueue_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void touch(const void *p, size_t length)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < length; i++)
		sink ^= b[i];
}

static void walk_queue(const struct mqueue_queue *q)
{
	const struct mqueue_message *m = (const void *)(q + 1);

	if (strnlen(q->name, sizeof(q->name)) == sizeof(q->name))
		abort();
	for (uint32_t i = 0; i < q->count; i++, m = mqueue_message_after(m))
		touch(m, sizeof(*m) + m->length);
}

static void walk(const void *record, size_t size)
{
	const struct mqueue_record *head = record;
	const struct mqueue_queue *q = (const void *)(head + 1);

	if (mqueue_fd_is_whole(record, size))
		touch(record, strlen(((const struct mqueue_fd *)record)->name));
	if (!mqueue_record_is_whole(record, size) || !size)
		return;
	for (uint32_t i = 0; i < head->count; i++, q = mqueue_queue_after(q))
		walk_queue(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	void *copy = malloc(size ? size : 1); /* of exact size: a read behind the end is one behind the allocation */

	if (!copy)
		abort();
	memcpy(copy, data, size);
	walk(copy, size);
	free(copy);
	return 0;
}
