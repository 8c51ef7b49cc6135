/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The making of pipes at a restart. A named one is opened by its path. One whose name is gone is made under another name in the same directory (else in /tmp), which is
 * taken away at once: it is a named pipe still, for those say end of file only when a writer has come and gone.
 *
 * Opening an end may block or fail for want of the other side: it is done while an end for both (O_RDWR, which never waits) is open. But whoever waits for
 * its first writer must not have seen one: such an end is opened alone, without waiting (O_NONBLOCK).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "plugins/pipe/pipe.h"

#define DELETED " (deleted)"

static int open_by(const char *path, int access, uint32_t flags)
{
	int both, r;

	if (flags & PIPE_WAITS)
		return raw_open_again(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	both = raw_open_again(path, O_RDWR | O_CLOEXEC);
	if (both < 0 || access == O_RDWR)
		return both;
	r = raw_open_again(path, access | O_CLOEXEC);
	raw_close(both);
	return r;
}

int pipe_open_end(uint32_t pid, int fd, int access, uint32_t flags)
{
	char path[FDPASS_NAME];
	int copy = fdpass_name(path, (int)pid, fd), r = open_by(path, access, flags);

	if (copy >= 0)
		raw_close(copy);
	return r;
}

static int make_name(const char *path)
{
	int r = (int)RAW4(SYS_mknodat, AT_FDCWD, path, S_IFIFO | 0600, 0);

	if (!r)
		r = (int)RAW2(SYS_chmod, path, 0600); /* whatever the umask is */
	return r < 0 ? r : raw_open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);
}

/* One that is gone, perhaps with its folders (mpirun removes its own when a rank dies), is made again, for its user. */
static int open_named(const char *path)
{
	int r = raw_open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);

	if (r != -ENOENT)
		return r;
	raw_make_parents(path);
	r = make_name(path);
	return r == -EEXIST ? raw_open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0) : r;
}

/* A name that is there already is another job's, which may have our numbers in a namespace of its own, or of a restart that was killed. */
static int make_in(const char *directory, size_t length, int number)
{
	char name[PATH_MAX + 64];
	int fd = -EEXIST;

	memcpy(name, directory, length);
	for (unsigned int other = 0; fd == -EEXIST && other < 100; other++) {
		fm_format(name + length, sizeof(name) - length, "/.fermata-%u-%d-%u", fermata_pid(), number, other);
		fd = make_name(name);
	}
	if (fd >= 0)
		RAW3(SYS_unlinkat, AT_FDCWD, name, 0);
	return fd;
}

static int make_deleted(const char *path, int number)
{
	const char *end = strrchr(path, '/');
	int r = end && end - path < PATH_MAX ? make_in(path, (size_t)(end - path), number) : -ENAMETOOLONG;

	return r < 0 ? make_in("/tmp", strlen("/tmp"), number) : r;
}

/* A descriptor that is no end of it yet (O_PATH). */
static int find(const struct fermata_desc *d, uint32_t flags)
{
	char buf[PATH_MAX];
	const char *path = fermata_path_now(d->link, buf, sizeof(buf));
	int r = !path ? -ENAMETOOLONG : flags & PIPE_DELETED ? make_deleted(path, d->fd) : open_named(path);

	return r < 0 ? fermata_fail(r, "fd %d: %s cannot be made or opened again (errno %d)", d->fd, path ? path : d->link, -r) : r;
}

static int make_named(const struct fermata_desc *d, const struct pipe_record *record)
{
	int found = find(d, record->flags), keep;
	struct stat st;

	if (found < 0)
		return found;
	keep = (int)RAW2(SYS_fstat, found, &st);
	if (!keep)
		keep = S_ISFIFO(st.st_mode) ? pipe_open_end(fermata_pid(), found, (int)record->access, record->flags) : -EEXIST;
	raw_close(found);
	return keep < 0 ? fermata_fail(keep, "fd %d: %s cannot be opened again (errno %d)", d->fd, d->link, -keep) : keep;
}

static int make_nameless(const struct fermata_desc *d, const struct pipe_record *record)
{
	int ends[2], keep = (int)RAW2(SYS_pipe2, ends, O_CLOEXEC);

	if (keep < 0)
		return fermata_fail(keep, "fd %d: no pipe can be made (errno %d)", d->fd, -keep);
	keep = pipe_open_end(fermata_pid(), ends[0], (int)record->access, 0);
	raw_close(ends[0]);
	raw_close(ends[1]);
	return keep;
}

int pipe_make(const struct fermata_desc *d, const struct pipe_record *record)
{
	int keep = pipe_is_named(d) ? make_named(d, record) : make_nameless(d, record);
	long size = keep < 0 ? 0 : raw_fcntl(keep, F_GETPIPE_SZ, 0);

	if (keep >= 0 && size != (long)record->capacity && raw_fcntl(keep, F_SETPIPE_SZ, record->capacity) < 0)
		log_warn("fd %d: the pipe had %u bytes, this one has %ld", d->fd, record->capacity, size);
	return keep;
}
