/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pipes between processes of the job, and named ones, with what is in them.
 *
 * A pipe is one inode; each open end is a description. Every holder publishes its ends in QUIESCE, so that all agree in the drain
 * on the maker: the lowest (pid, fd). The maker's record carries the content, and at restart
 *
 *   RECREATE   the maker makes the pipe and keeps the one end that it had
 *   RECONNECT  every other end is opened through /proc/MAKER/fd/N, which for a pipe gives a new description of either side and
 *              never blocks
 *   REFILL     the maker writes the content through an end opened for that, and closes it
 *
 * so at no time does anybody hold an end that the program had closed, once REFILL is over: end of file and EPIPE come
 * as they would have. Content (pipe_content.c) that nobody can read any more (no read end left) is dropped.
 *
 * An end whose other side is open (no POLLHUP or POLLERR) but not in the job leads outside: FERMATA_FD_OUTSIDE. A named
 * pipe is taken to be the job's own: a reader that never had a writer looks no different.
 *
 * A named pipe is the same, but that the maker opens its path instead: pipe_make.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/pipe/pipe.h"

struct pipe_key {
	char tag[8]; /* "pipe" */
	uint64_t dev, ino;
};

struct pipe_end { /* the published value */
	uint32_t pid;
	int32_t fd;
	uint32_t access;
	uint32_t reserved;
};

struct pipe_state { /* priv, from the drain on */
	struct pipe_end maker;
	int has_reader, has_writer;
};

static struct pipe_key key_of(const struct fermata_desc *d)
{
	return (struct pipe_key){ "pipe", d->st.st_dev, d->st.st_ino };
}

static int check_path(const struct fermata_desc *d)
{
	struct stat now;
	long r = RAW4(SYS_newfstatat, AT_FDCWD, d->link, &now, AT_SYMLINK_NOFOLLOW);

	if (r >= 0 && now.st_ino == d->st.st_ino && now.st_dev == d->st.st_dev)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d: the named pipe %s is another one now, or hidden: close it before the checkpoint", d->fd, d->link);
}

static int pipe_fd_claim(struct fermata_desc *d)
{
	struct pipe_key key = key_of(d);
	struct pipe_end end = { fermata_pid(), d->fd, d->status & O_ACCMODE, 0 };
	int r;

	if (!S_ISFIFO(d->st.st_mode) || d->status & O_PATH)
		return 0;
	r = pipe_is_named(d) && d->st.st_nlink ? check_path(d) : 0;
	if (r)
		return r;
	d->priv = fermata_alloc(sizeof(struct pipe_state));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	r = fermata_publish(&key, sizeof(key), &end, sizeof(end));
	if (!r)
		r = fermata_ask(&key, sizeof(key));
	return r ? r : 1;
}

/* No other side has gone. Of a nameless pipe it is there, then; a reader of a named one may wait for the first. */
static int has_not_ended(const struct fermata_desc *d)
{
	struct pollfd p = { .fd = d->fd };

	RAW3(SYS_poll, &p, 1, 0);
	return !(p.revents & (POLLHUP | POLLERR));
}

static int pipe_fd_drain(struct fermata_desc *d, unsigned int round)
{
	struct pipe_key key = key_of(d);
	struct pipe_state *s = d->priv;
	struct pipe_end end;
	const void *value;
	size_t len;

	if (round)
		return FERMATA_DRAINED;
	s->maker = (struct pipe_end){ fermata_pid(), d->fd, d->status & O_ACCMODE, 0 };
	for (unsigned int i = 0; (value = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		if (len < sizeof(end))
			return fermata_fail(-EPROTO, "a name for fd %d has %zu bytes", d->fd, len);
		memcpy(&end, value, sizeof(end));
		s->has_reader |= end.access != O_WRONLY;
		s->has_writer |= end.access != O_RDONLY;
		if (end.pid < s->maker.pid || (end.pid == s->maker.pid && end.fd < s->maker.fd))
			s->maker = end;
	}
	if ((!s->has_reader || !s->has_writer) && !pipe_is_named(d) && has_not_ended(d))
		return FERMATA_FD_OUTSIDE;
	return FERMATA_DRAINED;
}

static int dump_content(struct fermata_desc *d, struct pipe_record *record, struct pipe_content *content)
{
	int from = pipe_open_end(fermata_pid(), d->fd, O_RDONLY, PIPE_WAITS), r = from;

	if (from >= 0) {
		r = pipe_content_read(from, record->capacity, content);
		raw_close(from);
	}
	record->length = content->length;
	record->packets = content->packets;
	if (r == -EOPNOTSUPP)
		return fermata_fail(r, "fd %d (%s) is a pipe with both packets (O_DIRECT) and bytes in it, whose bounds cannot be told: let it be read before the checkpoint", d->fd, d->link);
	if (r == -ENOSPC)
		return fermata_fail(r, "the %u bytes in fd %d (%s) cannot be copied: the user's pipes have as many pages as they may (/proc/sys/fs/pipe-user-pages-soft)", content->length, d->fd, d->link);
	return r < 0 ? fermata_fail(r, "the %u bytes in fd %d (%s) cannot be copied (errno %d)", content->length, d->fd, d->link, -r) : 0;
}

static uint32_t flags_of(const struct fermata_desc *d)
{
	const struct pipe_state *s = d->priv;
	uint32_t deleted = d->st.st_nlink ? 0 : PIPE_DELETED;

	if (!pipe_is_named(d))
		return 0;
	if ((d->status & O_ACCMODE) != O_RDONLY || s->has_writer || !has_not_ended(d))
		return deleted;
	return deleted | PIPE_WAITS;
}

static int pipe_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	const struct pipe_state *s = d->priv;
	struct pipe_record record = {
		.version = PIPE_RECORD_VERSION, .access = d->status & O_ACCMODE, .maker_pid = s->maker.pid, .maker_fd = s->maker.fd, .flags = flags_of(d),
	};
	long capacity = raw_fcntl(d->fd, F_GETPIPE_SZ, 0);
	struct pipe_content content = { 0 };
	int r = 0;

	if (capacity < 0)
		return fermata_fail((int)capacity, "fd %d (%s) does not tell its size", d->fd, d->link);
	record.capacity = (uint32_t)capacity;
	if (s->maker.pid == fermata_pid() && s->maker.fd == d->fd && s->has_reader)
		r = dump_content(d, &record, &content);
	if (!r)
		r = fermata_sink_write(sink, &record, sizeof(record));
	if (!r && record.packets)
		r = fermata_sink_write(sink, content.sizes, record.packets * sizeof(*content.sizes));
	if (!r && record.length)
		r = fermata_sink_write(sink, content.bytes, record.length);
	pipe_content_free(&content);
	return r;
}

static int is_maker(const struct fermata_desc *d, const struct pipe_record *r)
{
	return r->maker_pid == fermata_pid() && r->maker_fd == d->fd;
}

static int are_whole(const struct pipe_record *r)
{
	const uint32_t *sizes = (const uint32_t *)(r + 1);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->packets; i++)
		sum += sizes[i];
	return !r->packets || sum == r->length;
}

static int pipe_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pipe_record *r = record;

	if (len < sizeof(*r) || r->version != PIPE_RECORD_VERSION || len - sizeof(*r) < r->length + (uint64_t)r->packets * sizeof(uint32_t) || !are_whole(r))
		return fermata_fail(-EBADMSG, "fd %d: the record of its pipe is damaged or of another version", d->fd);
	return is_maker(d, r) ? pipe_make(d, r) : FERMATA_FD_LATER;
}

static int pipe_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pipe_record *r = record;
	int fd = pipe_open_end(r->maker_pid, r->maker_fd, (int)r->access, r->flags);

	(void)len;
	if (fd < 0)
		fermata_fail(fd, "fd %d: the pipe at fd %d of process %u cannot be opened (errno %d)", d->fd, r->maker_fd,
			     r->maker_pid, -fd);
	return fd;
}

static int pipe_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pipe_record *r = record;
	int to, err;

	(void)len;
	if (!r->length)
		return 0;
	to = pipe_open_end(fermata_pid(), d->fd, O_WRONLY | O_NONBLOCK, 0);
	if (to < 0)
		return fermata_fail(to, "fd %d: its pipe cannot be opened for writing (errno %d)", d->fd, -to);
	err = pipe_content_write(to, r);
	raw_close(to);
	return err ? fermata_fail(err, "fd %d: the %u bytes that were in its pipe do not go back (errno %d)", d->fd, r->length, -err) : 0;
}

extern const struct fermata_plugin plugin_pipe;
const struct fermata_plugin plugin_pipe = {
	.api = FERMATA_PLUGIN_API,
	.name = "pipe",
	.fd_claim = pipe_fd_claim,
	.fd_drain = pipe_fd_drain,
	.fd_dump = pipe_fd_dump,
	.fd_restore = pipe_fd_restore,
	.fd_reconnect = pipe_fd_reconnect,
	.fd_refill = pipe_fd_refill,
};
