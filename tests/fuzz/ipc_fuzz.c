/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the records of System V semaphores and message queues, which a restart reads from images. What the check takes is walked through to its last byte as a restart does it.
 */
#include "plugins/ipc/ipc_record.h"
#include "tests/fuzz/fuzz.h"

static void walk_queue(const struct ipc_queue *q)
{
	const struct ipc_message *m = (const void *)(q + 1);

	for (uint32_t i = 0; i < q->count; i++, m = ipc_message_after(m))
		fuzz_touch(m, sizeof(*m) + m->length);
}

static void walk(const void *record, size_t size)
{
	const struct ipc_entry *e = NULL;

	if (!ipc_record_is_whole(record, size) || !size)
		return;
	while ((e = ipc_record_next(record, size, e))) {
		const struct ipc_set *s = (const void *)(e + 1);

		fuzz_touch(e, sizeof(*e) + e->length);
		if (e->kind == IPC_ENTRY_SET)
			fuzz_touch(s + 1, s->count * sizeof(struct ipc_semaphore));
		if (e->kind == IPC_ENTRY_QUEUE)
			walk_queue((const void *)(e + 1));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = fuzz_copy(data, size);

	walk(copy, size);
	free(copy);
	return 0;
}
