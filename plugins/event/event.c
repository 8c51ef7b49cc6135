/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that tell of events: eventfd, timerfd, signalfd, epoll, inotify, pidfd. They have no path and no peer; all of their state is in
 * /proc/self/fdinfo. No state here.
 *
 * An epoll set names other descriptors, those of a device too: it is made empty in RECREATE, and filled in REFILL, when every
 * number is in its place. What is ready then is told of anew. So an edge that the program was told of already may come twice, which
 * epoll(7) allows; none is lost.
 */
#include "plugins/event/event.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"

#define FDINFO_FIRST 4096u

static const struct {
	const char *link;
	enum event_kind kind;
	size_t size; /* of its record, without what follows */
} kinds[] = {
	{ "anon_inode:[eventfd]", EVENT_EVENTFD, sizeof(struct event_eventfd) },
	{ "anon_inode:[timerfd]", EVENT_TIMERFD, sizeof(struct event_timerfd) },
	{ "anon_inode:[signalfd]", EVENT_SIGNALFD, sizeof(struct event_signalfd) },
	{ "anon_inode:[eventpoll]", EVENT_EPOLL, sizeof(struct event_epoll) },
	{ "anon_inode:inotify", EVENT_INOTIFY, sizeof(struct event_inotify) },
	{ "anon_inode:[pidfd]", EVENT_PIDFD, sizeof(struct event_pidfd) },
};

static enum event_kind kind_of(const struct fermata_desc *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(d->link, kinds[i].link) == 0)
			return kinds[i].kind;
	return EVENT_NONE;
}

int event_fdinfo(int fd, char **ret_text)
{
	char path[64];
	long n;

	fm_format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
	for (size_t size = FDINFO_FIRST;; size *= 2) {
		*ret_text = fermata_alloc(size);
		n = *ret_text ? raw_read_file(path, *ret_text, size) : -ENOMEM;
		if (n >= 0)
			return 0;
		fermata_free(*ret_text);
		*ret_text = NULL;
		if (n != -EFBIG)
			return fermata_fail((int)n, "fd %d: %s cannot be read (errno %ld)", fd, path, -n);
	}
}

const char *event_field(const char *text, const char *name)
{
	size_t length = strlen(name);

	while (text) {
		if (strncmp(text, name, length) == 0)
			return text + length;
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return NULL;
}

uint64_t event_number(const char *text, unsigned int base)
{
	uint64_t value = 0;

	while (*text == ' ' || *text == '\t')
		text++;
	for (;; text++) {
		unsigned int digit = *text >= 'a' ? (unsigned int)(*text - 'a') + 10 : (unsigned int)(*text - '0');

		if (digit >= base)
			return value;
		value = value * base + digit;
	}
}

static int signalfd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct event_signalfd record = { { EVENT_RECORD_VERSION, EVENT_SIGNALFD }, 0 };
	const char *mask;
	char *text;
	int r = event_fdinfo(d->fd, &text);

	if (r)
		return r;
	mask = event_field(text, "sigmask:");
	record.mask = mask ? event_number(mask, 16) : 0;
	fermata_free(text);
	if (!mask)
		return fermata_fail(-EOPNOTSUPP, "fd %d: the kernel does not tell the mask of a signalfd", d->fd);
	return fermata_sink_write(sink, &record, sizeof(record));
}

static int event_fd_claim(struct fermata_desc *d)
{
	enum event_kind kind = kind_of(d);
	int r = kind == EVENT_INOTIFY ? event_inotify_check(d) : kind == EVENT_PIDFD ? event_pidfd_check(d) : kind == EVENT_EPOLL ? event_epoll_check(d) : 0;

	return r ? r : kind != EVENT_NONE;
}

static int event_fd_drain(struct fermata_desc *d, unsigned int round)
{
	return !round && kind_of(d) == EVENT_PIDFD ? event_pidfd_drain(d) : FERMATA_DRAINED;
}

static int event_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	switch (kind_of(d)) {
	case EVENT_EVENTFD: return event_eventfd_dump(d, sink);
	case EVENT_TIMERFD: return event_timerfd_dump(d, sink);
	case EVENT_SIGNALFD: return signalfd_dump(d, sink);
	case EVENT_INOTIFY: return event_inotify_dump(d, sink);
	case EVENT_PIDFD: return event_pidfd_dump(d, sink);
	default: return event_epoll_dump(d, sink);
	}
}

static int check(const struct fermata_desc *d, const struct event_record *r, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && len >= sizeof(*r); i++)
		if (r->version == EVENT_RECORD_VERSION && r->kind == kinds[i].kind && len >= kinds[i].size)
			return 0;
	return fermata_fail(-EBADMSG, "fd %d: the record of %s is damaged or of another version", d->fd, d->link);
}

static int event_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	const struct event_record *r = record;
	int fd = check(d, r, len);

	if (fd)
		return fd;
	switch (r->kind) {
	case EVENT_EVENTFD: return event_eventfd_restore(d, record);
	case EVENT_TIMERFD: return event_timerfd_restore(d, record);
	case EVENT_SIGNALFD:
		return (int)RAW4(SYS_signalfd4, -1, &((const struct event_signalfd *)record)->mask, RAW_SIGSET_SIZE, O_CLOEXEC);
	case EVENT_PIDFD: return event_pidfd_restore(d, record);
	case EVENT_INOTIFY: return (int)RAW1(SYS_inotify_init1, O_CLOEXEC);
	default: return (int)RAW1(SYS_epoll_create1, EPOLL_CLOEXEC);
	}
}

static int event_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	const struct event_epoll *r = record;

	if (r->head.kind == EVENT_INOTIFY)
		return event_inotify_refill(d, record, len);
	if (r->head.kind != EVENT_EPOLL)
		return 0;
	if ((len - sizeof(*r)) / sizeof(struct event_interest) < r->count)
		return fermata_fail(-EBADMSG, "fd %d: the record of its epoll set is cut", d->fd);
	return event_epoll_refill(d, r);
}

extern const struct fermata_plugin plugin_event;
const struct fermata_plugin plugin_event = {
	.api = FERMATA_PLUGIN_API,
	.name = "event",
	.quiesce = event_pidfd_quiesce,
	.fd_claim = event_fd_claim,
	.fd_drain = event_fd_drain,
	.fd_dump = event_fd_dump,
	.fd_restore = event_fd_restore,
	.fd_refill = event_fd_refill,
};
