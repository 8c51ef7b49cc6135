/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the records of POSIX message queues, which a restart reads from images. What the check takes is walked through to its last byte as a restart does it.
 */
#include "plugins/mqueue/mqueue_record.h"
#include "tests/fuzz/fuzz.h"

static void walk_queue(const struct mqueue_queue *q)
{
	const struct mqueue_message *m = (const void *)(q + 1);

	if (strnlen(q->name, sizeof(q->name)) == sizeof(q->name))
		abort();
	for (uint32_t i = 0; i < q->count; i++, m = mqueue_message_after(m))
		fuzz_touch(m, sizeof(*m) + m->length);
}

static void walk(const void *record, size_t size)
{
	const struct mqueue_record *head = record;
	const struct mqueue_queue *q = (const void *)(head + 1);

	if (mqueue_fd_is_whole(record, size))
		fuzz_touch(record, strlen(((const struct mqueue_fd *)record)->name));
	if (!mqueue_record_is_whole(record, size) || !size)
		return;
	for (uint32_t i = 0; i < head->count; i++, q = mqueue_queue_after(q))
		walk_queue(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = fuzz_copy(data, size);

	walk(copy, size);
	free(copy);
	return 0;
}
