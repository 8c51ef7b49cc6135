/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfd: which process it is of, living or a zombie. That process has to come back under its pid: it is of the job, as every process of that says in QUIESCE, or
 * a zombie whose parent is. At a restart all of them are there before RECREATE. One that has been waited for has no pid, and any that is gone stands for it.
 * State in priv: the two pids, from claim on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/ended.h"
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
	uint32_t pid, parent; /* pid 0: it is gone. parent: of a zombie, else 0 */
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

/* 0 for one that is gone. */
static int pidfd_read(const struct fermata_desc *d, uint32_t *ret_pid)
{
	const char *pid;
	char *text;
	int r = event_fdinfo(d->fd, &text);
	bool gone;

	if (r)
		return r;
	pid = event_field(text, "Pid:");
	*ret_pid = pid ? (uint32_t)event_number(pid, 10) : 0;
	gone = pid && !strncmp(pid, "\t-1", 3);
	fermata_free(text);
	if (*ret_pid || gone)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is of a process that cannot be seen from here: close it before the checkpoint", d->fd, d->link);
}

int event_pidfd_check(struct fermata_desc *d)
{
	struct pidfd_of of = { 0 };
	struct pidfd_key key;
	int r = pidfd_read(d, &of.pid);

	if (r)
		return r;
	of.parent = of.pid ? zombie_parent(of.pid) : 0;
	d->priv = fermata_alloc(sizeof(of));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	memcpy(d->priv, &of, sizeof(of));
	if (!of.pid)
		return 0;
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

	if (!of->pid || is_member(of->pid) || is_member(of->parent))
		return FERMATA_DRAINED;
	return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is of process %u, which is not of the job: close it before the checkpoint", d->fd, d->link, of->pid);
}

int event_pidfd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	const struct pidfd_of *of = d->priv;
	struct event_pidfd record = { { EVENT_RECORD_VERSION, EVENT_PIDFD }, of->pid, d->status & PIDFD_THREAD };

	return fermata_sink_write(sink, &record, sizeof(record));
}

static int open_of(int pid, void *flags)
{
	return (int)RAW2(SYS_pidfd_open, pid, *(const uint32_t *)flags);
}

int event_pidfd_restore(struct fermata_desc *d, const struct event_pidfd *r)
{
	uint32_t flags = r->flags;
	int fd = r->pid ? open_of((int)r->pid, &flags) : ended_child_open(open_of, &flags);

	return fd < 0 ? fermata_fail(fd, "fd %d: process %u cannot be opened again (errno %d)", d->fd, r->pid, -fd) : fd;
}
