/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes the queues that this process has saved for the job. Owns a descriptor of each, from RECREATE to REFILL: by it the permissions are set, when all have opened it.
 */
#include <errno.h>
#include <mqueue.h>

#include "base/log.h"
#include "base/macro.h"
#include "plugins/mqueue/mqueue.h"

#define MADE_MAX 1024u

static struct {
	int fd;
	const struct mqueue_queue *queue; /* in the record, which is the agent's */
} made[MADE_MAX];
static uint32_t made_count;

/* The namespace's limits, which root may raise. An ordinary user cannot, and has not been let to need it. */
static void raise_limit(const char *path, int64_t want)
{
	char text[24];
	int64_t have = 0;
	int fd = raw_open(path, O_RDWR | O_CLOEXEC, 0);
	long n;

	if (fd < 0)
		return;
	n = raw_read(fd, text, sizeof(text));
	for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		have = have * 10 + text[i] - '0';
	if (have < want)
		raw_pwrite(fd, text, fm_format(text, sizeof(text), "%ld", (long)want), 0);
	raw_close(fd);
}

static int make(const struct mqueue_queue *q)
{
	struct mq_attr attr = { .mq_maxmsg = q->capacity, .mq_msgsize = q->message_size };
	int fd, r;

	raise_limit("/proc/sys/fs/mqueue/msg_max", q->capacity);
	raise_limit("/proc/sys/fs/mqueue/msgsize_max", q->message_size);
	if (made_count == MADE_MAX)
		return fermata_fail(-ENFILE, "more than %u message queues", MADE_MAX);
	fd = (int)RAW4(SYS_mq_open, q->name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK | O_CLOEXEC, 0600, &attr);
	r = fd < 0 ? fd : (int)RAW2(SYS_fchmod, fd, 0600); /* whatever umask the program has */
	if (!r)
		r = mqueue_put(fd, q);
	if (r < 0)
		return fermata_fail(r, "message queue /%s cannot be made (errno %d)", q->name, -r);
	made[made_count].fd = fd;
	made[made_count++].queue = q;
	return 0;
}

int mqueue_recreate(const void *record, size_t len)
{
	const struct mqueue_record *head = record;
	const struct mqueue_queue *q = (const void *)(head + 1);
	int r = 0;

	made_count = 0;
	if (!mqueue_record_is_whole(record, len))
		return fermata_fail(-EBADMSG, "the record of message queues is damaged or of another version");
	for (uint32_t i = 0; len && i < head->count && !r; i++, q = mqueue_queue_after(q))
		r = make(q);
	return r;
}

static int settle(int fd, const struct mqueue_queue *q)
{
	int r = (int)RAW2(SYS_fchmod, fd, q->mode);

	if (!r && (q->uid != (uint32_t)RAW0(SYS_geteuid) || q->gid != (uint32_t)RAW0(SYS_getegid)))
		r = (int)RAW3(SYS_fchown, fd, q->uid, q->gid);
	if (!r && q->flags & MQUEUE_UNLINKED)
		r = (int)RAW1(SYS_mq_unlink, q->name);
	raw_close(fd);
	return r ? fermata_fail(r, "message queue /%s cannot be given its permissions (errno %d)", q->name, -r) : 0;
}

int mqueue_refill(void)
{
	int r = 0;

	for (uint32_t i = 0; i < made_count && !r; i++)
		r = settle(made[i].fd, made[i].queue);
	made_count = 0;
	return r;
}
