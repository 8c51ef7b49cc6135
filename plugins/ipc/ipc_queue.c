/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A System V message queue: its messages, copied where they are (MSG_COPY), each with its type, in their order. The capsule's namespace has the kernel's own limits, which an ordinary user
 * cannot raise: what would not fit in there is refused. Owns nothing.
 */
#include <errno.h>
#include <string.h>

#include "base/macro.h"
#include "plugins/ipc/ipc.h"

#define QUEUE_BYTES 16384u /* MSGMNB */
#define MESSAGE_BYTES 8192u /* MSGMAX */

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

static int check(const struct ipc_object *o, const struct msqid_ds *d)
{
	int r = ipc_check_user(o, d->msg_lspid, d->msg_stime);

	if (!r)
		r = ipc_check_user(o, d->msg_lrpid, d->msg_rtime);
	if (!r && RAW0(SYS_geteuid) && (d->msg_qbytes > QUEUE_BYTES || d->__msg_cbytes > QUEUE_BYTES))
		r = fermata_fail(-EOPNOTSUPP, "message queue %d may hold %lu bytes, which only root can give it at a restart: %u",
				 o->id, (unsigned long)d->msg_qbytes, QUEUE_BYTES);
	return r;
}

static int cannot(const struct ipc_object *o, long r)
{
	const char *why = r == -ENOSYS ? ": this kernel cannot copy messages (CONFIG_CHECKPOINT_RESTORE)" : "";

	return fermata_fail((int)r, "message queue %d cannot be read (errno %d)%s", o->id, (int)-r, why);
}

/* All of its messages to @at, which has room for them. The number of bytes, or -errno. */
static long copy(const struct ipc_object *o, char *at, uint32_t messages, size_t bytes)
{
	char *from = at;

	for (uint32_t i = 0; i < messages; i++) {
		struct ipc_message *m = (struct ipc_message *)at;
		long n = RAW5(SYS_msgrcv, o->id, &m->type, bytes, i, MSG_COPY | IPC_NOWAIT);

		if (n < 0)
			return cannot(o, n);
		if ((size_t)n > MESSAGE_BYTES && RAW0(SYS_geteuid))
			return fermata_fail(-EOPNOTSUPP, "message queue %d holds a message of %ld bytes, which only root can put back at a restart: the limit is %u",
					    o->id, n, MESSAGE_BYTES);
		m->length = (uint64_t)n;
		at += sizeof(*m) + ALIGN_UP((size_t)n, (size_t)8);
	}
	return at - from;
}

int ipc_queue_dump(const struct ipc_object *o, struct fermata_sink *sink)
{
	struct ipc_entry head = { IPC_ENTRY_QUEUE, 0 };
	struct ipc_queue queue = { 0 };
	union ipc_state state;
	char *bytes = NULL;
	long n = 0;
	int r = ipc_look(o, &state);

	if (!r)
		r = ipc_check_owner(o, &state, &queue.owner);
	if (!r)
		r = check(o, &state.queue);
	if (r)
		return r;
	queue.limit = state.queue.msg_qbytes;
	queue.count = (uint32_t)state.queue.msg_qnum;
	queue.lspid = state.queue.msg_lspid;
	queue.lrpid = state.queue.msg_lrpid;
	bytes = fermata_alloc(state.queue.__msg_cbytes * 2 + (queue.count + 1) * (sizeof(struct ipc_message) + 8));
	n = bytes ? copy(o, bytes, queue.count, state.queue.__msg_cbytes) : fermata_fail(-ENOMEM, "no memory for message queue %d", o->id);
	head.length = (uint32_t)(sizeof(queue) + (size_t)n);
	r = n < 0 ? (int)n : fermata_sink_write(sink, &head, sizeof(head));
	if (!r)
		r = fermata_sink_write(sink, &queue, sizeof(queue));
	if (!r)
		r = fermata_sink_write(sink, bytes, (size_t)n);
	fermata_free(bytes);
	return r;
}
