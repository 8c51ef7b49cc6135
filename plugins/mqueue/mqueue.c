/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * POSIX message queues, with their names: the capsule's IPC namespace has none at first, so each name is free. A queue is known to who has it open, and to who has opened it and whose
 * name for it is still there. Of these the lowest pid saves it, and at a restart
 *
 *   RECREATE   makes it and puts its messages in; one that had no name any more gets one for the time being
 *   RECONNECT  who leads a description opens it, by name
 *   REFILL     the former gives it its permissions and, if it had none, takes away its name
 *
 * Registrations (mq_notify) are of a process and a queue. The kernel tells which process has one, the agent's wrapper has noted what it carries. They are taken back in the drain, so that
 * putting messages back (mqueue_content.c) notifies nobody, and made again when the checkpoint or the restart is over. A process loses them when it closes a descriptor of the queue, in
 * whatever table of descriptors: so a look at a queue is another process' (mqueue_apart.c), and after a restart the watch thread has to be there first.
 *
 * Owns the list of queues, from QUIESCE, where the program's threads stand, to RESUME; after a restart, to its end. A process that has never called mq_open, and has none, pays nothing.
 */
#include "plugins/mqueue/mqueue.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/log.h"
#include "base/macro.h"

#define MQUEUE_MAGIC 0x19800202
#define MQUEUE_FILE_SIZE 80 /* what fstat says of each */

struct key {
	char name[8];
	uint64_t dev, ino;
};

static struct mqueue *first;

struct mqueue *mqueue_first(void)
{
	return first;
}

static struct key key_of(const struct mqueue *q)
{
	return (struct key){ "mqueue", q->dev, q->ino };
}

static void forget(void)
{
	for (struct mqueue *q = first, *next; q; q = next) {
		next = q->next;
		fermata_free(q);
	}
	first = NULL;
}

static struct mqueue *find(const struct stat *st)
{
	for (struct mqueue *q = first; q; q = q->next)
		if (q->ino == st->st_ino && q->dev == st->st_dev)
			return q;
	return NULL;
}

static int publish(const struct mqueue *q)
{
	struct key key = key_of(q);
	uint32_t pid = fermata_pid();
	int r = fermata_publish(&key, sizeof(key), &pid, sizeof(pid));

	return r ? r : fermata_ask(&key, sizeof(key));
}

static int add(const struct stat *st, const char *name, int fd)
{
	struct mqueue *q = find(st);

	if (q) {
		q->fd = q->fd < 0 ? fd : q->fd;
		return 0;
	}
	q = fermata_alloc(sizeof(*q));
	if (!q)
		return fermata_fail(-ENOMEM, "no memory for message queue /%s", name);
	q->ino = st->st_ino;
	q->dev = st->st_dev;
	q->unlinked = !st->st_nlink;
	q->fd = fd;
	if (q->unlinked)
		fm_format(q->name, sizeof(q->name), "fermata-%lx", (unsigned long)q->ino);
	else
		fm_format(q->name, sizeof(q->name), "%s", name);
	q->next = first;
	first = q;
	return publish(q);
}

/* Those that are there still of the names that the program has opened. */
static int quiesce(void)
{
	struct mqueue q = { .fd = -1 };
	unsigned int nth = 0;
	const char *name;
	struct stat st;
	int r, notified;

	forget();
	while ((r = fermata_mqueue_name(nth, &name)) > 0) {
		fm_format(q.name, sizeof(q.name), "%s", name);
		r = mqueue_look(&q, &st, &notified);
		if (r == -ENOENT) {
			fermata_mqueue_forget(name);
			continue;
		}
		r = r ? fermata_fail(r, "message queue /%s cannot be looked at (errno %d)", name, -r) : add(&st, name, -1);
		if (r)
			return r;
		nth++;
	}
	return r;
}

static bool is_queue(const struct fermata_desc *d)
{
	struct statfs s;

	return S_ISREG(d->st.st_mode) && d->st.st_size == MQUEUE_FILE_SIZE && !(d->status & O_PATH) &&
	       RAW2(SYS_fstatfs, d->fd, &s) == 0 && (uint32_t)s.f_type == MQUEUE_MAGIC;
}

static int mqueue_fd_claim(struct fermata_desc *d)
{
	const char *name = strrchr(d->link, '/');
	int r = is_queue(d) ? add(&d->st, name ? name + 1 : d->link, d->fd) : 0;

	return r ? r : is_queue(d);
}

bool mqueue_leads(const struct mqueue *q)
{
	struct key key = key_of(q);
	const uint32_t *pid;
	bool leads = true;
	size_t len;

	for (unsigned int i = 0; (pid = fermata_resolve(&key, sizeof(key), i, &len)); i++)
		leads &= *pid >= fermata_pid();
	return leads;
}

/* ---- registrations ---- */

static int take_back(struct mqueue *q)
{
	struct stat st;
	int notified, r = mqueue_look(q, &st, &notified);

	if (r)
		return fermata_fail(r, "message queue /%s cannot be looked at (errno %d)", q->name, -r);
	if (notified != (int)fermata_pid())
		return 0;
	if (fermata_mqueue_notify_noted(q->ino, &q->notify) <= 0)
		return fermata_fail(-EOPNOTSUPP, "message queue /%s: who is notified of messages has not asked for it by mq_notify, which is not supported", q->name);
	r = (int)RAW2(SYS_mq_notify, q->fd, NULL);
	q->notifies = !r;
	return r ? fermata_fail(r, "message queue /%s: the notification cannot be taken back (errno %d)", q->name, -r) : 0;
}

static int drain(unsigned int round)
{
	int r = 0;

	for (struct mqueue *q = first; q && !r && !round; q = q->next)
		if (q->fd >= 0)
			r = take_back(q);
	return r ? r : FERMATA_DRAINED;
}

static void register_again(void)
{
	for (struct mqueue *q = first; q; q = q->next) {
		struct sigevent event = { .sigev_notify = q->notify.notify, .sigev_signo = q->notify.signal };
		struct stat st;
		int r;

		if (!q->notifies)
			continue;
		event.sigev_value.sival_ptr = (void *)q->notify.value;
		r = (int)RAW2(SYS_mq_notify, q->fd, &event);
		if (r)
			log_warn("message queue /%s: the program will not be notified (errno %d)", q->name, -r);
		if (RAW2(SYS_fstat, q->fd, &st) == 0) /* another number after a restart */
			fermata_mqueue_notify_note(st.st_ino, &q->notify);
	}
}

static void over(void)
{
	register_again();
	forget();
}

/* ---- records ---- */

static int dump(struct fermata_sink *sink)
{
	struct mqueue_record head = { .version = MQUEUE_RECORD_VERSION };
	int r;

	for (const struct mqueue *q = first; q; q = q->next)
		head.count += mqueue_leads(q);
	if (!head.count)
		return 0;
	r = fermata_sink_write(sink, &head, sizeof(head));
	for (const struct mqueue *q = first; q && !r; q = q->next)
		if (mqueue_leads(q))
			r = mqueue_dump(q, sink);
	return r;
}

static int mqueue_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct mqueue_fd record = { .version = MQUEUE_RECORD_VERSION, .access = d->status & O_ACCMODE };

	memcpy(record.name, find(&d->st)->name, sizeof(record.name));
	return fermata_sink_write(sink, &record, sizeof(record));
}

static int mqueue_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	const struct mqueue_fd *r = record;

	if (!mqueue_fd_is_whole(r, len))
		return fermata_fail(-EBADMSG, "fd %d: the record of its message queue is damaged or of another version", d->fd);
	return FERMATA_FD_LATER;
}

static int mqueue_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	const struct mqueue_fd *r = record;
	int fd = (int)RAW4(SYS_mq_open, r->name, r->access | O_CLOEXEC, 0, NULL);

	(void)len;
	return fd < 0 ? fermata_fail(fd, "fd %d: message queue /%s cannot be opened (errno %d)", d->fd, r->name, -fd) : fd;
}

extern const struct fermata_plugin plugin_mqueue;
const struct fermata_plugin plugin_mqueue = {
	.api = FERMATA_PLUGIN_API,
	.name = "mqueue",
	.fd_claim = mqueue_fd_claim,
	.fd_dump = mqueue_fd_dump,
	.fd_restore = mqueue_fd_restore,
	.fd_reconnect = mqueue_fd_reconnect,
	.quiesce = quiesce,
	.drain = drain,
	.dump = dump,
	.resume = over,
	.recreate = mqueue_recreate,
	.refill = mqueue_refill,
	.watched = over,
};
