/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts directories into a checkpoint, while the job stands: with-K.list, and with-K/ with the contents of its files, each as a link to what the checkpoint before has, as a
 * clone, or as a copy. It runs in the coordinator, on a thread of its own, and owns nothing beyond the call.
 *
 * A clone of each file, not a snapshot of a subvolume: it costs as little where a directory is no subvolume, too, and who may not remove subvolumes can remove it.
 *
 * Not changed since the checkpoint before means: the same inode, size, time of change of content and of inode, the latter older by 2 seconds than when the other was listed,
 * on a file system whose times are this host's, and no process of the job had it open for writing or mapped, then or now. Not on tmpfs: pages that are written
 * to in memory change no time there, whoever had it mapped in between.
 */
#include "cli/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/cli.h"
#include "cli/tree_list.h"
#include "image/content.h"
#include "image/manifest.h"

#define SETTLED_SEC 2
#define SYNC_EACH_MAX 256
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

struct save {
	struct directories_order *order;
	struct directories_result *result;
	const char *root;
	unsigned int k;
	bool times_tell; /* see above */
	struct tree_items items;
	struct tree_list list;
	char before[PATH_MAX]; /* the checkpoint before; "": none */
	struct image_tree *old; /* what it has of the same directory, or NULL */
	struct tree_inode *old_files;
	size_t old_count;
	int to;	      /* with-K/ */
	size_t copied;
	void *buffer; /* of IMAGE_CONTENT_BLOCK bytes */
	uint64_t begun;
};

static bool go_on(void *arg)
{
	return !((struct save *)arg)->order->cancelled;
}

static int progress(void *arg, uint64_t at)
{
	struct save *s = arg;

	s->order->done = s->begun + at;
	return !go_on(s) ? -ECANCELED : fault_point(FAULT_TREE_IN_COPY);
}

static int fail(struct save *s, int err, const char *path, const char *what)
{
	char size[32];

	size_format((double)s->order->total, size, sizeof(size));
	if (err == -ENOSPC || err == -EDQUOT || err == -EFBIG)
		snprintf(s->order->text, sizeof(s->order->text), "No space left on %.200s for %.200s (%s): --files=check leaves its contents out", s->order->partial,
			 s->root, size);
	else
		snprintf(s->order->text, sizeof(s->order->text), "%.300s %s: %s; --files=ignore leaves directories out", path, what, strerror(-err));
	return err;
}

static const char *path_of(const struct save *s, size_t n, char *buf, size_t size)
{
	const char *path = s->list.texts + s->list.entries[n].path;

	snprintf(buf, size, "%s%s%s", s->root, *path ? "/" : "", path);
	return buf;
}

/* ---- what the checkpoint before has ---- */

static void take_old(struct save *s)
{
	struct image_error e;

	for (unsigned int k = 1; s->before[0] && k <= DIRECTORIES_MAX && !s->old; k++) {
		if (image_tree_open(s->before, k, &s->old, &e))
			return;
		if (strcmp(s->old->texts + s->old->head.root, s->root))
			s->old = image_tree_free(s->old);
	}
	s->old_files = s->old ? malloc((s->old->head.count + 1) * sizeof(*s->old_files)) : NULL;
	for (uint64_t n = 0; s->old_files && n < s->old->head.count; n++)
		if (s->old->entries[n].flags & IMAGE_TREE_SAVED)
			s->old_files[s->old_count++] = (struct tree_inode){ s->old->entries[n].dev, s->old->entries[n].ino, n };
	if (s->old_files)
		tree_inodes_sort(s->old_files, s->old_count);
}

bool tree_times_tell(const char *path)
{
	static const uint32_t local[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC };
	struct statfs f;

	if (statfs(path, &f) < 0)
		return false;
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if ((uint32_t)f.f_type == local[i])
			return true;
	return false;
}

/* True: it is there. */
static bool link_before(struct save *s, struct image_tree_entry *e, const char *name)
{
	const struct tree_inode *found = tree_inodes_find(s->old_files, s->old_count, e->dev, e->ino);
	const struct image_tree_entry *was = found ? &s->old->entries[found->index] : NULL;
	char path[PATH_MAX + 64];
	struct stat st;

	if (!was || !s->times_tell || (e->flags | was->flags) & IMAGE_TREE_MAPPED || e->size != was->size || e->mtime_sec != was->mtime_sec ||
	    e->mtime_nsec != was->mtime_nsec || e->ctime_sec != was->ctime_sec || e->ctime_nsec != was->ctime_nsec ||
	    s->old->head.seen_sec - was->ctime_sec <= SETTLED_SEC)
		return false;
	snprintf(path, sizeof(path), "%s/%s/%zu", s->before, s->old->name, found->index);
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size || linkat(AT_FDCWD, path, s->to, name, 0) < 0)
		return false;
	e->sum = was->sum;
	e->bytes = was->bytes;
	e->flags |= was->flags & IMAGE_TREE_HAS_SUM;
	s->result->linked++;
	return true;
}

/* ---- contents ---- */

static int open_source(const char *path, const struct image_tree_entry *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOATIME);
	struct stat st;

	if (fd < 0 && errno == EPERM)
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_dev != e->dev || st.st_ino != e->ino)) {
		close(fd);
		errno = ESTALE;
		fd = -1;
	}
	return fd < 0 ? -errno : fd;
}

static int copy(struct save *s, struct image_tree_entry *e, const char *path, int from, int to)
{
	const struct image_content_work w = { .buffer = s->buffer, .progress = progress, .arg = s };
	bool cloned = to >= 0 && !image_content_clone(from, to), reading = false;
	int r;

	if (cloned && e->size > IMAGE_CONTENT_CLONE_SUMMED) {
		e->bytes = e->size;
		return 0;
	}
	r = image_content_copy(&w, cloned ? to : from, cloned ? -1 : to, e->size, &e->sum, &e->bytes, &reading);
	e->flags |= IMAGE_TREE_HAS_SUM;
	if (r == -ENODATA)
		return fail(s, r, path, "has become shorter while it was saved, by somebody outside of the job");
	return r ? fail(s, r, path, reading ? "cannot be read" : "cannot be copied") : 0;
}

static int save_file(struct save *s, size_t n)
{
	struct image_tree_entry *e = &s->list.entries[n];
	char path[2 * PATH_MAX], name[24];
	int from, to = -1, r = 0;

	snprintf(name, sizeof(name), "%zu", n);
	if (s->order->contents && link_before(s, e, name)) {
		e->flags |= IMAGE_TREE_SAVED;
		return 0;
	}
	from = open_source(path_of(s, n, path, sizeof(path)), e);
	if (from < 0)
		return fail(s, from, path, "cannot be read");
	if (s->order->contents)
		to = openat(s->to, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->order->contents && to < 0)
		r = fail(s, -errno, path, "cannot be copied");
	if (!r)
		r = copy(s, e, path, from, to);
	e->flags |= to >= 0 ? IMAGE_TREE_SAVED | IMAGE_TREE_FRESH : 0;
	s->copied += to >= 0;
	if (to >= 0) {
		sync_file_range(to, 0, 0, SYNC_FILE_RANGE_WRITE); /* let it begin */
		close(to);
	}
	close(from);
	return r;
}

static int open_compare(const void *key, const void *item)
{
	const struct image_tree_entry *e = key;
	const struct directories_open *o = item;

	if (e->dev != o->dev)
		return e->dev < o->dev ? -1 : 1;
	return e->ino < o->ino ? -1 : e->ino > o->ino;
}

/* What an image has already, under one name, is not saved twice. */
static bool is_elsewhere(const struct save *s, struct image_tree_entry *e)
{
	const struct directories_open *o = s->order->open_count ? bsearch(e, s->order->open, s->order->open_count, sizeof(*o), open_compare) : NULL;

	if (!o)
		return false;
	e->flags |= o->mapped ? IMAGE_TREE_MAPPED : 0;
	if (!s->order->open_saved) /* another process' pages may be written to, for all that is known here */
		e->flags |= IMAGE_TREE_MAPPED;
	if (o->mapped || !s->order->open_saved || e->nlink > 1)
		return false;
	e->flags |= IMAGE_TREE_OPEN;
	return true;
}

static int save_contents(struct save *s)
{
	int r = 0;

	for (size_t n = 0; n < s->list.count; n++)
		s->order->total += s->list.entries[n].size;
	for (size_t n = 0; n < s->list.count && !r; n++) {
		struct image_tree_entry *e = &s->list.entries[n];

		if (!go_on(s))
			return -ECANCELED;
		s->result->left_out += e->kind == IMAGE_TREE_LEFT_OUT || e->flags & IMAGE_TREE_MOUNT;
		if (e->kind != IMAGE_TREE_FILE || is_elsewhere(s, e))
			continue;
		s->begun = s->order->done;
		r = save_file(s, n);
		s->order->done = s->begun + e->size;
		s->result->files++;
		s->result->bytes += e->bytes;
	}
	return r;
}

/* ---- one directory ---- */

static int write_list(struct save *s)
{
	char path[PATH_MAX + 32];
	int fd, r;

	snprintf(path, sizeof(path), "%s/with-%u.list", s->order->partial, s->k);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : tree_list_write(&s->list, fd, s->result->digest);
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	return r ? fail(s, r, path, "cannot be written") : 0;
}

static int sync_file(const struct save *s, size_t n)
{
	char name[24];
	int fd, r;

	snprintf(name, sizeof(name), "%zu", n);
	fd = openat(s->to, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	r = fd < 0 || fsync(fd) < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return r;
}

/* A sync of the file system waits for what others write there; one a file would hold up the job by a turn of the disk each. */
static int sync_contents(struct save *s)
{
	int r = s->copied > SYNC_EACH_MAX && syncfs(s->to) < 0 ? -errno : 0;

	for (size_t n = 0; n < s->list.count && !r; n++) {
		if (s->list.entries[n].flags & IMAGE_TREE_FRESH && s->copied <= SYNC_EACH_MAX)
			r = sync_file(s, n);
		s->list.entries[n].flags &= ~(uint32_t)IMAGE_TREE_FRESH;
	}
	if (!r && s->to >= 0 && fsync(s->to) < 0)
		r = -errno;
	return r ? fail(s, r, s->root, "cannot be saved") : 0;
}

static int list(struct save *s)
{
	char path[2 * PATH_MAX];
	struct stat dir;
	size_t at;
	int r;

	if (stat(s->order->dir, &dir) < 0)
		return fail(s, -errno, s->order->dir, "cannot be examined");
	r = tree_walk(s->root, &dir, go_on, s, &s->items);
	if (r)
		return fail(s, r, s->items.failed, "cannot be read");
	r = tree_list_make(&s->items, s->root, &s->list, &at);
	return r ? fail(s, r, path_of(s, at, path, sizeof(path)), "cannot be listed") : 0;
}

static int save(struct save *s)
{
	char path[PATH_MAX + 32];
	int r = list(s);

	snprintf(path, sizeof(path), "%s/with-%u", s->order->partial, s->k);
	if (!r && s->order->contents) {
		s->times_tell = tree_times_tell(s->root);
		take_old(s);
		if (mkdir(path, 0700) < 0 || (s->to = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
			r = fail(s, -errno, path, "cannot be made");
	}
	if (!r)
		r = save_contents(s);
	if (!r)
		r = sync_contents(s);
	return r ? r : write_list(s);
}

static int save_one(struct directories_order *order, unsigned int index, const char *before, void *buffer)
{
	struct save s = { .order = order, .result = &order->results[index], .root = order->paths[index], .k = index + 1, .to = -1, .buffer = buffer };
	int r;

	snprintf(s.before, sizeof(s.before), "%s", before);
	r = save(&s);
	if (s.to >= 0)
		close(s.to);
	image_tree_free(s.old);
	free(s.old_files);
	tree_list_free(&s.list);
	tree_items_free(&s.items);
	return r;
}

int tree_save_all(struct directories_order *order)
{
	void *buffer = malloc(IMAGE_CONTENT_BLOCK);
	struct manifest *before = NULL;
	struct image_error e;
	int r = buffer ? 0 : -ENOMEM;

	if (manifest_open(order->dir, &before, &e))
		before = NULL;
	for (unsigned int i = 0; i < order->count && !r; i++)
		r = save_one(order, i, before ? before->path : "", buffer);
	if (r && !order->text[0])
		snprintf(order->text, sizeof(order->text), "the directories cannot be saved: %s", strerror(-r));
	manifest_free(before);
	free(buffer);
	return r;
}
