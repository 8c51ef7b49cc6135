/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfd: which process it is of, living or a zombie. That process has to come back under its pid: it is of the job, as every process of that says in QUIESCE, or
 * a zombie whose parent is. At a restart all of them are there before RECREATE. State in priv: the two pids, from claim on.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/event/event.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

struct pidfd_key {
	char tag[8]; /* "eventpid" */
	uint32_t pid;
};

struct pidfd_of {
	uint32_t pid, parent; /* parent: of a zombie, else 0 */
};

static struct pidfd_key key_of(uint32_t pid)
{
	return (struct pidfd_key){ .tag = { 'e', 'v', 'e', 'n', 't', 'p', 'i', 'd' }, .pid = pid };
}

int event_pidfd_quiesce(void)
{
	struct pidfd_key key = key_of(fermata_pid());

	return fermata_publish(&key, sizeof(key), &key.pid, sizeof(key.pid));
}

/* The parent of a zombie; a process whose first thread has ended looks like one. 0: it lives. */
static uint32_t zombie_parent(uint32_t pid)
{
	char path[40], text[512], *at;
	long n;

	fm_format(path, sizeof(path), "/proc/%u/stat", pid);
	n = raw_read_file(path, text, sizeof(text));
	at = n > 0 ? strrchr(text, ')') : NULL;
	return at && !strncmp(at, ") Z ", 4) ? (uint32_t)event_number(at + 4, 10) : 0;
}

static int pidfd_read(int fd, uint32_t *ret_pid)
{
	const char *pid;
	char *text;
	int r = event_fdinfo(fd, &text);

	if (r)
		return r;
	pid = event_field(text, "Pid:");
	*ret_pid = pid ? (uint32_t)event_number(pid, 10) : 0; /* "-1" has no digit at its beginning */
	fermata_free(text);
	return 0;
}

int event_pidfd_check(struct fermata_desc *d)
{
	struct pidfd_of of = { 0 };
	struct pidfd_key key;
	int r = pidfd_read(d->fd, &of.pid);

	if (r)
		return r;
	if (!of.pid)
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is of a process that has ended and been waited for, which is not supported: close it before "
				    "the checkpoint", d->fd, d->link);
	of.parent = zombie_parent(of.pid);
	d->priv = fermata_alloc(sizeof(of));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	memcpy(d->priv, &of, sizeof(of));
	key = key_of(of.pid);
	r = fermata_ask(&key, sizeof(key));
	key = key_of(of.parent);
	return r || !of.parent ? r : fermata_ask(&key, sizeof(key));
}

static int is_member(uint32_t pid)
{
	struct pidfd_key key = key_of(pid);
	size_t len;

	return pid && fermata_resolve(&key, sizeof(key), 0, &len);
}

int event_pidfd_drain(const struct fermata_desc *d)
{
	const struct pidfd_of *of = d->priv;

	if (is_member(of->pid) || is_member(of->parent))
		return FERMATA_DRAINED;
	return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is of process %u, which is not of the job: close it before the checkpoint", d->fd, d->link, of->pid);
}

int event_pidfd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	const struct pidfd_of *of = d->priv;
	struct event_pidfd record = { { EVENT_RECORD_VERSION, EVENT_PIDFD }, of->pid, d->status & PIDFD_THREAD };

	return fermata_sink_write(sink, &record, sizeof(record));
}

int event_pidfd_restore(struct fermata_desc *d, const struct event_pidfd *r)
{
	int fd = (int)RAW2(SYS_pidfd_open, r->pid, r->flags);

	return fd < 0 ? fermata_fail(fd, "fd %d: process %u cannot be opened again (errno %d)", d->fd, r->pid, -fd) : fd;
}
