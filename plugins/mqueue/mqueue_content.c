/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is in a POSIX message queue. There is no way to look at it: the messages are taken out and put back, in the order in which they came out, which gives the same order again. The
 * job stands meanwhile. If the process that does it were killed in between, the messages would be lost for the others; so a *keeper* does it (mqueue_apart.c), which a signal for us does not
 * reach. We wait for it.
 *
 * Owns nothing between calls.
 */
#include <errno.h>
#include <mqueue.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/macro.h"
#include "plugins/mqueue/mqueue.h"

#define CAPACITY_MAX 10u  /* what an ordinary user may ask for in a new IPC namespace: DFLT_MSGMAX */
#define SIZE_MAX_EACH 8192u /* and DFLT_MSGSIZEMAX */

/* ---- the keeper ---- */

struct taking {
	int fd;
	struct mqueue_queue head;
	char *bytes; /* room for all */
	int error;
};

static size_t step(const struct mqueue_message *m)
{
	return sizeof(*m) + ALIGN_UP((size_t)m->length, (size_t)8);
}

static void take_out(struct taking *t)
{
	for (;;) {
		struct mqueue_message *m = (struct mqueue_message *)(t->bytes + t->head.length);
		long n = t->head.count < t->head.capacity ?
				 RAW5(SYS_mq_timedreceive, t->fd, m + 1, t->head.message_size, &m->priority, NULL) : -EAGAIN;

		if (n < 0) {
			t->error = n == -EAGAIN ? 0 : (int)n;
			return;
		}
		m->length = (uint32_t)n;
		t->head.length += step(m);
		t->head.count++;
	}
}

static int put_back(int fd, const struct mqueue_queue *q, const char *bytes)
{
	for (uint32_t i = 0; i < q->count; i++) {
		const struct mqueue_message *m = (const void *)bytes;
		long r = RAW5(SYS_mq_timedsend, fd, m + 1, m->length, m->priority, NULL);

		if (r < 0)
			return (int)r;
		bytes += step(m);
	}
	return 0;
}

static void keeper_main(void *arg)
{
	struct taking *t = arg;
	int r;

	take_out(t);
	(void)fault_point(FAULT_MQUEUE_TAKEN_OUT);
	r = put_back(t->fd, &t->head, t->bytes);
	t->error = t->error ? t->error : r;
}

/* ---- dump ---- */

static int check(const struct mqueue *q, const struct mqueue_queue *h)
{
	struct stat st;
	int notified, r = mqueue_look(q, &st, &notified);

	if (r)
		return fermata_fail(r, "message queue /%s cannot be looked at (errno %d)", q->name, -r);
	if (notified)
		return fermata_fail(-EOPNOTSUPP, "message queue /%s notifies process %d, which is not of the job", q->name, notified);
	if (!RAW0(SYS_geteuid))
		return 0;
	if (h->capacity > CAPACITY_MAX || h->message_size > SIZE_MAX_EACH)
		return fermata_fail(-EOPNOTSUPP, "message queue /%s has room for %ld messages of %ld bytes, which only root can give it at a restart: %u of %u",
				    q->name, (long)h->capacity, (long)h->message_size, CAPACITY_MAX, SIZE_MAX_EACH);
	if (h->uid != (uint32_t)RAW0(SYS_geteuid) || h->gid != (uint32_t)RAW0(SYS_getegid))
		return fermata_fail(-EOPNOTSUPP, "message queue /%s belongs to another user or group (%u.%u) than process %u", q->name, h->uid,
				    h->gid, fermata_pid());
	return 0;
}

static int describe(const struct mqueue *q, int fd, struct mqueue_queue *ret)
{
	struct mq_attr attr;
	struct stat st;
	int r = (int)RAW3(SYS_mq_getsetattr, fd, NULL, &attr);

	if (!r)
		r = (int)RAW2(SYS_fstat, fd, &st);
	if (r)
		return fermata_fail(r, "message queue /%s cannot be looked at (errno %d)", q->name, -r);
	*ret = (struct mqueue_queue){ .mode = st.st_mode & 07777, .uid = st.st_uid, .gid = st.st_gid, .flags = q->unlinked ? MQUEUE_UNLINKED : 0,
				      .capacity = attr.mq_maxmsg, .message_size = attr.mq_msgsize };
	memcpy(ret->name, q->name, sizeof(ret->name));
	return check(q, ret);
}

static int dump(const struct mqueue *q, int fd, struct fermata_sink *sink)
{
	struct taking t = { .fd = fd };
	int r = describe(q, fd, &t.head);

	if (r)
		return r;
	t.bytes = fermata_alloc((size_t)t.head.capacity * (ALIGN_UP((size_t)t.head.message_size, (size_t)8) + sizeof(struct mqueue_message)) + 8);
	if (!t.bytes)
		return fermata_fail(-ENOMEM, "no memory for what is in message queue /%s", q->name);
	r = mqueue_apart(keeper_main, &t);
	r = r ? r : t.error;
	if (r)
		fermata_fail(r, "the messages in message queue /%s cannot be taken out and put back (errno %d)", q->name, -r);
	if (!r)
		r = fermata_sink_write(sink, &t.head, sizeof(t.head));
	if (!r)
		r = fermata_sink_write(sink, t.bytes, t.head.length);
	fermata_free(t.bytes);
	return r;
}

int mqueue_dump(const struct mqueue *q, struct fermata_sink *sink)
{
	int fd = mqueue_open(q, O_RDWR), r;

	if (fd < 0)
		return fermata_fail(fd, "message queue /%s cannot be opened for what is in it (errno %d)", q->name, -fd);
	r = dump(q, fd, sink);
	raw_close(fd);
	return r;
}

int mqueue_put(int fd, const struct mqueue_queue *q)
{
	return put_back(fd, q, (const char *)(q + 1));
}
