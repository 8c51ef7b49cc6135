/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V semaphores and message queues, with their ids. `fermata restart` makes them again in the capsule's IPC namespace, before the tree (cli/restart_ipc.c); what only a
 * process can do for itself, its adjustments of semaphores, it does in RECREATE, and RECONNECT puts right who was the last to change them.
 *
 * A set or a queue is read while the whole job stands, by the lowest pid that knows it; nothing is taken out of a queue. So a checkpoint that fails, or a process
 * that dies in it, has touched nothing.
 *
 * Owns the record from RECREATE to RECONNECT (it is the agent's memory).
 */
#include <errno.h>
#include <string.h>

#include "plugins/ipc/ipc.h"

static const char *record;
static size_t record_length;

static int dump_object(struct ipc_object *o, struct fermata_sink *sink)
{
	ipc_lead(o);
	if (!o->leads)
		return 0;
	return o->kind == FERMATA_SYSV_SEMAPHORES ? ipc_set_dump(o, sink) : ipc_queue_dump(o, sink);
}

static int dump(struct fermata_sink *sink)
{
	struct ipc_record head = { IPC_RECORD_VERSION, 0 };
	struct ipc_object *o;
	int r;

	if (!ipc_object_at(0))
		return 0;
	r = ipc_check_namespaces();
	if (!r)
		r = fermata_sink_write(sink, &head, sizeof(head));
	for (uint32_t i = 0; !r && (o = ipc_object_at(i)); i++)
		r = dump_object(o, sink);
	return r ? r : ipc_undo_dump(sink);
}

/* Hands all entries of @kind to @fn. */
static int each(uint32_t kind, int (*fn)(const struct ipc_adjustment *a, uint32_t count))
{
	const struct ipc_entry *e = NULL;
	int r = 0;

	while (!r && (e = ipc_record_next(record, record_length, e)))
		if (e->kind == kind)
			r = fn((const void *)(e + 1), e->length / sizeof(struct ipc_adjustment));
	return r;
}

static int recreate(const void *data, size_t len)
{
	record = NULL;
	ipc_user_init();
	if (!ipc_record_is_whole(data, len))
		return fermata_fail(-EBADMSG, "the record of System V semaphores is damaged or of another version");
	if (!len)
		return 0;
	record = data;
	record_length = len;
	return each(IPC_ENTRY_UNDO, ipc_undo_make);
}

static int reconnect(void)
{
	int r = record ? each(IPC_ENTRY_TOUCH, ipc_undo_touch) : 0;

	record = NULL;
	fermata_undo_restarted();
	return r;
}

extern const struct fermata_plugin plugin_ipc;
const struct fermata_plugin plugin_ipc = {
	.api = FERMATA_PLUGIN_API,
	.name = "ipc",
	.init = ipc_user_init,
	.quiesce = ipc_find,
	.dump = dump,
	.resume = ipc_forget,
	.recreate = recreate,
	.reconnect = reconnect,
	.restarted = ipc_forget,
};
