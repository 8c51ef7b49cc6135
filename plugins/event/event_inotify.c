/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inotify. The kernel tells of each watch its number, its events, and the inode; the agent's wrapper knows with which path it was made, in the process that made it and its
 * children until they execute another program: one of these leads the descriptor. Whether that still
 * leads there a watch of ours on it tells, in the same words of the kernel. At a restart the watches are made by path, in REFILL, when what
 * the restart itself opens has been opened; each gets its number by INOTIFY_IOC_SETNEXTWD (Linux 4.16, CONFIG_CHECKPOINT_RESTORE).
 *
 * Events that nobody has read cannot be looked at without taking them out, nor put back: a descriptor with such is refused. What the checkpoint itself
 * opens later than that look is the program's to read. No state.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "plugins/event/event.h"

#ifndef INOTIFY_IOC_SETNEXTWD
#define INOTIFY_IOC_SETNEXTWD _IOW('I', 0, int32_t)
#endif

struct watch {
	int32_t wd;
	uint32_t mask;
	uint64_t ino, dev;
};

/* "inotify wd:1 ino:2af sdev:800001 mask:2 ..", all hexadecimal. */
static int parse(const char *line, struct watch *w)
{
	const char *wd = strstr(line, "wd:"), *ino = strstr(line, "ino:"), *dev = strstr(line, "sdev:"), *mask = strstr(line, "mask:");

	if (!wd || !ino || !dev || !mask)
		return -EOPNOTSUPP;
	*w = (struct watch){ .wd = (int32_t)event_number(wd + 3, 16), .ino = event_number(ino + 4, 16),
			     .dev = event_number(dev + 5, 16), .mask = (uint32_t)event_number(mask + 5, 16) };
	return 0;
}

/* What a watch on @path would be, by a descriptor of ours. */
static int probe(const char *path, uint32_t flags, struct watch *ret)
{
	int fd = (int)RAW1(SYS_inotify_init1, IN_CLOEXEC), r;
	const char *line;
	char *text;

	if (fd < 0)
		return fd;
	r = (int)RAW3(SYS_inotify_add_watch, fd, path, IN_DELETE_SELF | (flags & IN_DONT_FOLLOW));
	if (r >= 0)
		r = event_fdinfo(fd, &text);
	if (!r) {
		line = event_field(text, "inotify ");
		r = line ? parse(line, ret) : -EOPNOTSUPP;
		fermata_free(text);
	}
	raw_close(fd);
	return r;
}

static int same(const struct watch *a, const struct watch *b)
{
	return a->ino == b->ino && a->dev == b->dev;
}

static const char *path_of(const struct watch *w, uint32_t *ret_flags)
{
	struct watch there;
	const char *path;

	for (unsigned int nth = 0; (path = fermata_inotify_path(w->wd, nth, ret_flags)); nth++)
		if (!probe(path, *ret_flags, &there) && same(&there, w))
			return path;
	return NULL;
}

/* Who has made its newest watch, or has forked from who has, knows of all before, too. */
static int is_known(const char *text)
{
	const char *line = event_field(text, "inotify ");
	struct watch newest;
	uint32_t flags;

	return !line || (!parse(line, &newest) && path_of(&newest, &flags));
}

int event_inotify_check(struct fermata_desc *d)
{
	int unread = 0, r;
	char *text;

	raw_ioctl(d->fd, FIONREAD, &unread);
	if (unread)
		return fermata_fail(-EAGAIN, "fd %d (inotify) has %d bytes of events that nobody has read, which cannot be saved: try again when "
				    "the program has read them", d->fd, unread);
	r = event_fdinfo(d->fd, &text);
	if (r)
		return r;
	d->partial = !is_known(text);
	fermata_free(text);
	return 0;
}

static int dump_watch(const struct fermata_desc *d, const struct watch *w, struct fermata_sink *sink)
{
	static const char zeros[8];
	struct event_watch record = { .wd = w->wd, .mask = w->mask };
	uint32_t flags = 0;
	const char *path = path_of(w, &flags);
	int r;

	if (!path) {
		path = fermata_inotify_path(w->wd, 0, &flags);
		return fermata_fail(-EOPNOTSUPP, "fd %d (inotify): its watch %d was made with a path that no longer leads to what it watches%s%s",
				    d->fd, w->wd, path ? ": " : "", path ? path : "");
	}
	record.mask |= flags;
	record.length = (uint32_t)strlen(path) + 1;
	r = fermata_sink_write(sink, &record, sizeof(record));
	if (!r)
		r = fermata_sink_write(sink, path, record.length);
	return r ? r : fermata_sink_write(sink, zeros, ALIGN_UP(record.length, 8u) - record.length);
}

/* The kernel lists the newest first. Ascending: the watch with the lowest number above @after. 0: there is none. */
static int next_watch(const char *text, int32_t after, struct watch *ret)
{
	struct watch w;
	int found = 0;

	while ((text = event_field(text, "inotify ")))
		if (!parse(text, &w) && w.wd > after && (!found || w.wd < ret->wd)) {
			*ret = w;
			found = 1;
		}
	return found;
}

int event_inotify_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct event_inotify record = { .head = { EVENT_RECORD_VERSION, EVENT_INOTIFY } };
	struct watch w = { 0 };
	const char *line;
	char *text;
	int r = event_fdinfo(d->fd, &text);

	if (r)
		return r;
	for (line = text; (line = event_field(line, "inotify "));)
		record.count++;
	r = fermata_sink_write(sink, &record, sizeof(record));
	while (!r && next_watch(text, w.wd, &w))
		r = dump_watch(d, &w, sink);
	fermata_free(text);
	return r;
}

static int add(const struct fermata_desc *d, const struct event_watch *w)
{
	char buf[PATH_MAX];
	const char *path = fermata_path_now((const char *)(w + 1), buf, sizeof(buf));
	int r;

	if (!path)
		return -ENAMETOOLONG;
	raw_ioctl(d->fd, INOTIFY_IOC_SETNEXTWD, (void *)(intptr_t)w->wd);
	r = (int)RAW3(SYS_inotify_add_watch, d->fd, path, w->mask);
	if (r == w->wd)
		return 0;
	if (r >= 0)
		return fermata_fail(-EOPNOTSUPP, "fd %d: %s cannot be watched (inotify) under its old number %d here", d->fd, path, w->wd);
	return fermata_fail(r, "fd %d: %s, which it watches (inotify), cannot be watched here (errno %d)", d->fd, path, -r);
}

int event_inotify_refill(struct fermata_desc *d, const struct event_inotify *record, size_t len)
{
	const char *at = (const char *)(record + 1), *end = (const char *)record + len;
	int r = 0;

	for (uint32_t i = 0; i < record->count && !r; i++) {
		const struct event_watch *w = (const struct event_watch *)at;

		if ((size_t)(end - at) < sizeof(*w) || (size_t)(end - at) - sizeof(*w) < ALIGN_UP((size_t)w->length, 8) || !w->length ||
		    ((const char *)(w + 1))[w->length - 1])
			return fermata_fail(-EBADMSG, "fd %d: the record of what it watches is cut", d->fd);
		r = add(d, w);
		at += sizeof(*w) + ALIGN_UP((size_t)w->length, 8);
	}
	return r;
}
