/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * eventfd: a counter, and whether it is a semaphore. Newer kernels tell the latter in fdinfo (6.18 does, 5.14 does not); for others it is
 * found out by reading from two, which takes one or all, and putting back. Nobody else looks meanwhile: every process of the
 * job stands still. No state.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "base/sys.h"
#include "plugins/event/event.h"

static int add(int fd, uint64_t n)
{
	long r = n ? raw_write(fd, &n, sizeof(n)) : (long)sizeof(n);

	return r < 0 ? (int)r : 0;
}

int event_eventfd_is_semaphore(int fd, uint64_t count)
{
	uint64_t total = count < 2 ? 2 : count, taken, one;
	int r = add(fd, total - count);
	long n = r ? r : raw_read(fd, &taken, sizeof(taken));

	if (n < 0)
		return (int)n;
	if (taken == total) /* all of at least two: a plain counter, empty now */
		r = add(fd, count);
	else if (count == 0) /* one of two is left */
		r = raw_read(fd, &one, sizeof(one)) < 0 ? -EIO : 0;
	else if (count > 1)
		r = add(fd, 1);
	return r ? r : taken != total;
}

int event_eventfd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct event_eventfd record = { .head = { EVENT_RECORD_VERSION, EVENT_EVENTFD } };
	const char *count, *semaphore;
	char *text;
	int r = event_fdinfo(d->fd, &text), kind;

	if (r)
		return r;
	count = event_field(text, "eventfd-count:");
	semaphore = event_field(text, "eventfd-semaphore:");
	record.count = count ? event_number(count, 16) : 0;
	kind = semaphore ? event_number(semaphore, 10) != 0 : event_eventfd_is_semaphore(d->fd, record.count);
	fermata_free(text);
	if (!count || kind < 0)
		return fermata_fail(kind < 0 ? kind : -EOPNOTSUPP, "fd %d: the kernel does not tell what is in an eventfd", d->fd);
	record.semaphore = (uint32_t)kind;
	return fermata_sink_write(sink, &record, sizeof(record));
}

int event_eventfd_restore(struct fermata_desc *d, const struct event_eventfd *r)
{
	int fd = (int)RAW2(SYS_eventfd2, 0, EFD_CLOEXEC | (r->semaphore ? EFD_SEMAPHORE : 0)), e;

	if (fd < 0)
		return fd;
	e = add(fd, r->count);
	if (!e)
		return fd;
	raw_close(fd);
	return fermata_fail(e, "fd %d: its eventfd does not take the count of %lu (errno %d)", d->fd, (unsigned long)r->count, -e);
}
