/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the records of System V semaphores and message queues, which a restart reads from images. What the check takes is walked through to its last byte as a restart does it.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/ipc/ipc_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void touch(const void *p, size_t length)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < length; i++)
		sink ^= b[i];
}

static void walk_queue(const struct ipc_queue *q)
{
	const struct ipc_message *m = (const void *)(q + 1);

	for (uint32_t i = 0; i < q->count; i++, m = ipc_message_after(m))
		touch(m, sizeof(*m) + m->length);
}

static void walk(const void *record, size_t size)
{
	const struct ipc_entry *e = NULL;

	if (!ipc_record_is_whole(record, size) || !size)
		return;
	while ((e = ipc_record_next(record, size, e))) {
		const struct ipc_set *s = (const void *)(e + 1);

		touch(e, sizeof(*e) + e->length);
		if (e->kind == IPC_ENTRY_SET)
			touch(s + 1, s->count * sizeof(struct ipc_semaphore));
		if (e->kind == IPC_ENTRY_QUEUE)
			walk_queue((const void *)(e + 1));
	}
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
