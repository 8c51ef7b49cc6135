/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptions that lead out of the job: its terminal, and the pipes and sockets that its standard streams were given. They
 * cannot be re-created; at restart the process gets those of `fermata restart` in their place.
 *
 *   number 0, 1, 2 of a description     that stream of `fermata restart`
 *   another number of a terminal	 the first of its streams 0, 2, 1 that is a terminal
 *   another number of a pipe or socket  the stream that the description was, here or in another process
 *
 * Owns the inherited descriptors from RECREATE to the end of the restart. A terminal is re-attached by each process
 * for itself; any other such description has a leader, and the others take it from there.
 */
#include "agent/fd_table.h"

#include <asm/termbits.h>
#include <asm/ioctls.h>
#include <errno.h>

#include "base/fdpass.h"
#include "base/macro.h"
#include "base/sys.h"

/* The record of a re-attached description: plugin "stdio" in the image. */
struct fd_stdio_record {
	uint32_t stdio_mask; /* bit N: it was descriptor N of some process of the job */
	uint32_t type;	     /* S_IFMT bits */
	char link[64];	     /* what /proc/self/fd showed, cut; for inspection */
};
_Static_assert(sizeof(struct fd_stdio_record) == 72, "fd_stdio_record");

static int inherited[3] = { -EBADF, -EBADF, -EBADF };

static int is_terminal(int fd)
{
	struct termios t;

	return raw_ioctl(fd, TCGETS, &t) == 0;
}

/* A pseudo-terminal may be the job's own: its plugin says so in the drain. */
int fd_stdio_claim(const struct fermata_desc *d)
{
	return S_ISCHR(d->st.st_mode) && !(d->status & O_PATH) && is_terminal(d->fd);
}

int fd_stdio_take_over(struct fd_entry *e)
{
	if (!e->stdio_mask && e->plugin->fd_let_go && fermata_option_external() != FERMATA_EXTERNAL_FAIL)
		return e->plugin->fd_let_go(&e->desc);
	if (!e->stdio_mask)
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) leads to a process outside the job: launch that one under the "
				    "job too, or close fd %d before the checkpoint%s", e->desc.fd, e->desc.link, e->desc.fd,
				    e->plugin->fd_let_go ? ", or let it go (--external=error)" : "");
	e->plugin = NULL;
	return 0;
}

int fd_stdio_dump(const struct fd_entry *e, struct fermata_sink *sink)
{
	struct fd_stdio_record r = { .stdio_mask = e->stdio_mask, .type = e->desc.st.st_mode & S_IFMT };

	for (size_t i = 0; i < sizeof(r.link) - 1 && e->desc.link[i]; i++)
		r.link[i] = e->desc.link[i];
	return fermata_sink_write(sink, &r, sizeof(r));
}

int fd_stdio_inherit(const struct image_restart *r, int above)
{
	if (above < FDPASS_PARK_BASE)
		above = FDPASS_PARK_BASE;
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++) {
		int fd = (int)r->stdio[i];
		int to = fd < 0 ? -EBADF : raw_fcntl(fd, F_DUPFD_CLOEXEC, above);

		if (to < 0 && to != -EBADF)
			return fermata_fail(to, "cannot keep stream %u of the restart (errno %d)", (unsigned int)i, -to);
		inherited[i] = to;
	}
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++)
		if ((int)r->stdio[i] >= 0)
			raw_close((int)r->stdio[i]);
	return 0;
}

/* A stream that `fermata restart` was started without. */
static int stream(int number)
{
	if (inherited[number] < 0) {
		int fd = raw_open("/dev/null", O_RDWR | O_CLOEXEC, 0);

		inherited[number] = fd < 0 ? fd : fdpass_park(fd);
	}
	return inherited[number];
}

int fd_stdio_pick(const struct fd_entry *e, int fd)
{
	static const int order[] = { 0, 2, 1 };

	if (fd <= 2)
		return stream(fd);
	if (!S_ISCHR(e->desc.st.st_mode))
		return stream(__builtin_ctz(e->stdio_mask | 4));
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (inherited[order[i]] >= 0 && is_terminal(inherited[order[i]]))
			return inherited[order[i]];
	if (e->stdio_mask)
		return stream(__builtin_ctz(e->stdio_mask));
	return fermata_fail(-ENOTTY, "fd %d was the terminal %s: restart from a terminal", fd, e->desc.link);
}

void fd_stdio_done(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++) {
		if (inherited[i] >= 0)
			raw_close(inherited[i]);
		inherited[i] = -EBADF;
	}
}
