/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds a directory against what the checkpoint says of it: each entry of the list is looked at in its place, and what is in the directory but not in the list is noted.
 * Owns restart_tree.items, .now and .extra.
 *
 * A file whose inode, size and times are those of the checkpoint is not read, where these times tell (cli/tree_save.c); of any other one the content decides.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/restart_files.h"
#include "cli/restart_trees.h"

#define SETTLED_SEC 2

/* As it was listed: it need not be read. */
static bool is_untouched(const struct restart_tree *t, const struct image_tree_entry *e, const struct stat *st)
{
	return !(e->flags & IMAGE_TREE_MAPPED) && tree_times_tell(t->root) && st->st_dev == e->dev && st->st_ino == e->ino &&
	       st->st_ctim.tv_sec == e->ctime_sec && (uint32_t)st->st_ctim.tv_nsec == e->ctime_nsec && st->st_mtim.tv_sec == e->mtime_sec &&
	       (uint32_t)st->st_mtim.tv_nsec == e->mtime_nsec && t->list->head.seen_sec - e->ctime_sec > SETTLED_SEC;
}

/* The sum that it had: known, or that of the copy. */
static int saved_sum(struct restart *r, const struct restart_tree *t, uint64_t n, uint64_t *ret)
{
	const struct image_tree_entry *e = &t->list->entries[n];
	char path[PATH_MAX + 64];
	int fd, err;

	*ret = e->sum;
	if (e->flags & IMAGE_TREE_HAS_SUM)
		return 0;
	snprintf(path, sizeof(path), "%s/%s/%llu", r->checkpoint, t->list->name, (unsigned long long)n);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	err = restart_files_copy(r, fd, -1, e->size, ret);
	close(fd);
	return err;
}

static bool has_content(struct restart *r, const struct restart_tree *t, uint64_t n, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	uint64_t is, was;
	bool same;

	if (fd < 0)
		return false;
	same = !restart_files_copy(r, fd, -1, t->list->entries[n].size, &is) && !saved_sum(r, t, n, &was) && is == was;
	close(fd);
	return same;
}

static bool has_target(const struct restart_tree *t, const struct image_tree_entry *e, const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = 0;
	return !strcmp(target, t->list->texts + e->other);
}

/* Also: it has as many names, or what is written through one of them would show in another. */
static bool is_same_file(struct restart *r, const struct restart_tree *t, uint64_t n, const char *path, const struct stat *st)
{
	const struct image_tree_entry *e = &t->list->entries[n];

	return S_ISREG(st->st_mode) && (uint64_t)st->st_size == e->size && st->st_nlink == e->nlink &&
	       (is_untouched(t, e, st) || has_content(r, t, n, path));
}

static bool is_same(struct restart *r, const struct restart_tree *t, uint64_t n, const char *path, const struct stat *st)
{
	const struct image_tree_entry *e = &t->list->entries[n];
	const struct restart_tree_item *other = &t->items[e->other < n ? e->other : 0];

	switch (e->kind) {
	case IMAGE_TREE_DIRECTORY: return S_ISDIR(st->st_mode);
	case IMAGE_TREE_FILE: return is_same_file(r, t, n, path, st);
	case IMAGE_TREE_SYMLINK: return S_ISLNK(st->st_mode) && has_target(t, e, path);
	case IMAGE_TREE_FIFO: return S_ISFIFO(st->st_mode);
	case IMAGE_TREE_LINK: return other->state == RESTART_TREE_SAME && other->dev == st->st_dev && other->ino == st->st_ino;
	default: return true;
	}
}

static bool is_touched(const struct image_tree_entry *e, const struct stat *st)
{
	return e->kind != IMAGE_TREE_SYMLINK && e->kind < IMAGE_TREE_LINK && !(e->flags & IMAGE_TREE_MOUNT) &&
	       ((st->st_mode & 07777) != e->mode || st->st_mtim.tv_sec != e->mtime_sec || (uint32_t)st->st_mtim.tv_nsec != e->mtime_nsec);
}

/* Open files are restart_files.c's, but not what else has their name now; below what is no directory any more nothing of the list is there. */
static int compare_entry(struct restart *r, struct restart_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->list->entries[n];
	struct restart_tree_item *i = &t->items[n];
	char path[2 * PATH_MAX];
	struct stat st;

	restart_tree_path(t, image_tree_path(t->list, e), path);
	if (e->kind == IMAGE_TREE_LEFT_OUT || e->flags & IMAGE_TREE_OPEN) {
		bool there = t->items[e->parent].state == RESTART_TREE_SAME && !lstat(path, &st);

		i->state = there && e->flags & IMAGE_TREE_OPEN && !S_ISREG(st.st_mode) ? RESTART_TREE_DIFFERS : RESTART_TREE_LEFT;
		return 0;
	}
	if ((n && t->items[e->parent].state != RESTART_TREE_SAME) || lstat(path, &st) < 0) {
		i->state = RESTART_TREE_MISSING;
		if (n && t->items[e->parent].state != RESTART_TREE_SAME)
			return 0;
		return errno == ENOENT ? 0 : -errno;
	}
	i->dev = st.st_dev;
	i->ino = st.st_ino;
	i->state = is_same(r, t, n, path, &st) ? RESTART_TREE_SAME : RESTART_TREE_DIFFERS;
	i->touched = i->state == RESTART_TREE_SAME && is_touched(e, &st);
	return 0;
}

/* ---- what is in it, and was not ---- */

struct named {
	const char *path;
	uint64_t n;
};

static int named_compare(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->path, ((const struct named *)b)->path);
}

/* What lies in a directory that is new itself, or has something else's name, goes with it. */
static int find_extras(struct restart_tree *t)
{
	uint64_t count = t->list->head.count;
	struct named *all = malloc(count * sizeof(*all)), *found;

	t->extra = calloc(t->now.count + 1, 1);
	if (!all || !t->extra) {
		free(all);
		return -ENOMEM;
	}
	for (uint64_t n = 0; n < count; n++)
		all[n] = (struct named){ image_tree_path(t->list, &t->list->entries[n]), n };
	qsort(all, count, sizeof(*all), named_compare);
	for (size_t i = 1; i < t->now.count; i++) {
		const struct named wanted = { t->now.all[i].path, 0 };
		size_t parent = t->now.all[i].parent;

		found = bsearch(&wanted, all, count, sizeof(*all), named_compare);
		if (t->extra[parent] != RESTART_TREE_SAME) /* it goes with that, or stays with it */
			t->extra[i] = RESTART_TREE_LEFT;
		else if (!found)
			t->extra[i] = RESTART_TREE_DIFFERS;
		else if (t->items[found->n].state == RESTART_TREE_DIFFERS)
			t->extra[i] = RESTART_TREE_LEFT;
	}
	free(all);
	return 0;
}

static int fail(const char *path, int err)
{
	warnx("%s: %s; --files=ignore takes directories as they are", path, strerror(-err));
	return CLI_CANNOT;
}

int restart_tree_compare(struct restart *r, struct restart_tree *t)
{
	char path[2 * PATH_MAX];
	struct stat dir;
	int err = 0;

	for (uint64_t n = 0; n < t->list->head.count; n++) {
		err = compare_entry(r, t, n);
		if (err)
			return fail(restart_tree_path(t, image_tree_path(t->list, &t->list->entries[n]), path), err);
	}
	if (t->items[0].state == RESTART_TREE_DIFFERS)
		return fail(t->root, -ENOTDIR);
	if (t->items[0].state == RESTART_TREE_SAME)
		err = stat(r->dir, &dir) < 0 ? -errno : tree_walk(t->root, &dir, NULL, NULL, &t->now);
	if (err)
		return fail(t->now.failed, err);
	return find_extras(t) ? fail(t->root, -ENOMEM) : 0;
}

bool restart_tree_differs(const struct restart_tree *t)
{
	for (uint64_t n = 0; n < t->list->head.count; n++)
		if (t->items[n].state == RESTART_TREE_DIFFERS || t->items[n].state == RESTART_TREE_MISSING)
			return true;
	for (size_t n = 0; n < t->now.count; n++)
		if (t->extra[n] == RESTART_TREE_DIFFERS)
			return true;
	return false;
}
