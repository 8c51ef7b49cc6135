/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts the content of one file into the checkpoint's directory: as a link to what the checkpoint before has, where the file has not changed
 * since; as a clone, where the file system can; else as a copy, holes as holes. Synced, as images are. Owns nothing beyond the call.
 *
 * Not changed means: the same file, size, time of change of content and of inode, the latter older by 2 seconds than when the other was
 * looked at, and nobody has it mapped for writing: pages that are written to in memory change no time until they are written out. Only on file systems whose
 * times are this host's, and not on tmpfs, which writes nothing out: who had it mapped in between would have left no trace.
 *
 * Invariant: all of it runs in a thread with a table of descriptors of its own. Closing any descriptor of a file in the program's table
 * would let go the program's POSIX locks on it.
 */
#include "agent/content.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "agent/agent.h"
#include "image/content.h"

#define SETTLED_SEC 2
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* For people: "%lu MiB" of it, rounded up. */
#define MIB(bytes) ((unsigned long)(((bytes) + (1u << 20) - 1) >> 20))

static uint32_t file_system_of(int fd, const char *path)
{
	struct statfs s;

	return (fd >= 0 ? RAW2(SYS_fstatfs, fd, &s) : RAW2(SYS_statfs, path, &s)) < 0 ? 0 : (uint32_t)s.f_type;
}

bool content_is_local(int fd, const char *path)
{
	static const uint32_t local[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC };
	uint32_t type = file_system_of(fd, path);

	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		if (type == local[i])
			return true;
	return false;
}

static bool unchanged(const struct content *c, const struct content *b)
{
	const struct image_content *r = &c->record, *was = &b->record;

	return image_content_is_saved(was) && !c->mapped && !b->mapped && r->size == was->size && r->mtime_sec == was->mtime_sec &&
	       r->mtime_nsec == was->mtime_nsec && c->ctime_sec == b->ctime_sec && c->ctime_nsec == b->ctime_nsec &&
	       b->seen_sec - b->ctime_sec > SETTLED_SEC;
}

/* True: it is there. */
static bool link_before(struct content *c, const struct content *b, const struct content_place *place, int from)
{
	char path[sizeof(b->name) + 640];
	struct stat st;

	if (!b || !image_content_is_saved(&c->record) || !unchanged(c, b) || !place->before || !content_is_local(from, NULL) ||
	    file_system_of(from, NULL) == TMPFS_MAGIC)
		return false;
	fm_format(path, sizeof(path), "%s/%s", place->before, b->name);
	if (RAW4(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || (uint64_t)st.st_size != c->record.size ||
	    RAW5(SYS_linkat, AT_FDCWD, path, place->dir, c->name, 0) < 0)
		return false;
	c->record.sum = b->record.sum;
	c->record.bytes = b->record.bytes;
	c->record.flags |= b->record.flags & IMAGE_CONTENT_HAS_SUM;
	return true;
}

static int fail(const struct content *c, const struct content_place *place, int err, bool reading)
{
	if (reading && c->deleted)
		return fermata_fail(err, "%s cannot be read, so its content cannot be saved (errno %d): close it before the checkpoint", c->path, -err);
	if (reading)
		return fermata_fail(err, err == -ENODATA ? "%s has become shorter while it was saved: somebody outside of the job writes to it "
				    "(or --files=ignore)" : "%s cannot be read, so its content cannot be saved (errno %d): --files=ignore leaves it out",
				    c->path, -err);
	if (err == -ENOSPC || err == -EDQUOT || err == -EFBIG)
		return fermata_fail(err, c->deleted ? "No space left on %s for the content of %s (%lu MiB)" :
						      "No space left on %s for the content of %s (%lu MiB): --files=check leaves it out", place->directory,
				    c->path, MIB(c->record.size));
	return fermata_fail(err, "the content of %s cannot be written to %s (errno %d)", c->path, place->directory, -err);
}

/* A description of our own, for reading: the program's may be for writing only, or unbuffered. *@ret_theirs: it is the program's all the same. */
static int open_source(const struct content *c, bool *ret_theirs)
{
	char proc[40];
	struct stat st;
	int fd;

	fm_format(proc, sizeof(proc), "/proc/thread-self/fd/%d", c->fd);
	fd = raw_open(c->fd >= 0 ? proc : c->path, O_RDONLY | O_CLOEXEC | O_NOATIME | O_NOCTTY | O_NONBLOCK, 0);
	if (fd == -EPERM)
		fd = raw_open(c->fd >= 0 ? proc : c->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
	if (fd < 0 && c->fd >= 0 && (raw_fcntl(c->fd, F_GETFL, 0) & (O_ACCMODE | O_DIRECT)) == O_RDWR)
		*ret_theirs = (fd = raw_fcntl(c->fd, F_DUPFD_CLOEXEC, 3)) >= 0;
	if (fd >= 0 && (RAW2(SYS_fstat, fd, &st) < 0 || st.st_dev != c->record.dev || st.st_ino != c->record.ino)) {
		raw_close(fd);
		return -ESTALE;
	}
	return fd;
}

/* Of a file without a name what is mapped comes back with the memory. */
static void leave_mapped_out(void *arg, uint64_t at, void *data, size_t n)
{
	const struct content *c = arg;
	const struct stat st = { .st_dev = c->record.dev, .st_ino = c->record.ino, .st_size = (off_t)c->record.size };
	const uint64_t first = at, last = at + n;
	uint64_t start, end;

	for (; at < last; at = end) {
		start = at;
		if (!fermata_next_unmapped(&st, &start, &end) || start > last)
			start = end = last;
		memset((char *)data + (at - first), 0, start - at);
	}
}

static int copy(struct content *c, const struct content_place *place, int from, int to, bool theirs)
{
	bool in_part = c->deleted && c->mapped, cloned = to >= 0 && !in_part && !image_content_clone(from, to), reading = false;
	const struct image_content_work w = { .buffer = place->buffer, .progress = content_progress, .arg = c, .dense = theirs && !cloned,
					      .mask = in_part ? leave_mapped_out : NULL };
	int r = 0;

	if (cloned && c->record.size > IMAGE_CONTENT_CLONE_SUMMED) {
		c->record.bytes = c->record.size;
		return 0;
	}
	r = image_content_copy(&w, cloned ? to : from, cloned ? -1 : to, c->record.size, &c->record.sum, &c->record.bytes, &reading);
	c->record.flags |= IMAGE_CONTENT_HAS_SUM;
	return r ? fail(c, place, r, reading) : 0;
}

int content_save(struct content *c, const struct content *before, const struct content_place *place)
{
	bool theirs = false;
	int from = open_source(c, &theirs), to = -1, r = 0;

	if (from < 0)
		return fail(c, place, from, true);
	if (link_before(c, before, place, from))
		goto out;
	if (image_content_is_saved(&c->record)) {
		to = raw_create(place->dir, c->name, O_RDWR);
		r = to < 0 ? fail(c, place, to, false) : 0;
	}
	if (!r)
		r = copy(c, place, from, to, theirs);
	if (!r && to >= 0) {
		r = (int)RAW1(SYS_fsync, to);
		r = r ? fail(c, place, r, false) : 0;
	}
	if (to >= 0)
		raw_close(to);
out:
	raw_close(from);
	return r;
}
