/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts directories back as they were at the checkpoint, all or none:
 *
 *   stage    copies of the files that have to be put back (restart_trees_stage.c)
 *   commit   what is in the way, or was made since, is moved to DIR/newer-N/with-K (on another file system ROOT/.fermata-newer-N); then what was there is made again,
 *            directories before what is in them; times and modes last
 *   undo     a restart that fails takes every step back (restart_trees_steps.c)
 *
 * Invariant: nothing that was there is removed, only moved. A restart that is killed leaves the directory between the two, and the next one puts it back.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/restart_files.h"
#include "cli/restart_trees.h"

#define ASIDE_MAX 100000

/* ---- commit: out of the way ---- */

static int make_aside(struct restart *r, struct restart_tree *t, bool inside)
{
	int err = 0;

	if (t->aside[0])
		return 0;
	if (!inside) {
		err = restart_files_make_aside(r);
		snprintf(t->aside, sizeof(t->aside), "%s/%s", r->contents->aside, t->list->name);
		err = err ? err : restart_tree_make_directory(r->trees, t->aside);
	}
	for (unsigned int i = 1; inside && i < ASIDE_MAX && !t->aside[0]; i++) {
		snprintf(t->aside, sizeof(t->aside), "%s/" TREE_OURS "newer-%u", t->root, i);
		if (!mkdir(t->aside, 0700))
			err = restart_tree_note(r->trees, NULL, t->aside);
		else if (errno != EEXIST)
			err = -errno;
		else
			t->aside[0] = 0;
		if (err)
			break;
	}
	if (err)
		t->aside[0] = 0;
	return err;
}

static int move_aside(struct restart *r, struct restart_tree *t, const char *relative)
{
	char from[2 * PATH_MAX], to[3 * PATH_MAX];
	int err = 0;

	restart_tree_path(t, relative, from);
	for (int times = 0; times < 2; times++) {
		err = make_aside(r, t, times);
		if (err)
			break;
		snprintf(to, sizeof(to), "%s/%s", t->aside, relative);
		err = strlen(to) >= 2 * PATH_MAX ? -ENAMETOOLONG : restart_tree_make_parents(r->trees, to, strlen(t->aside));
		if (!err)
			err = restart_tree_move(r->trees, from, to);
		if (err != -EXDEV || t->moved)
			break;
		t->aside[0] = 0; /* in the directory itself, then: what has been made for this is empty */
	}
	if (err)
		return restart_tree_cannot(from, err);
	t->moved++;
	return 0;
}

static int clear_way(struct restart *r, struct restart_tree *t)
{
	int code = 0;

	for (size_t n = 0; n < t->now.count && !code; n++)
		if (t->extra[n] == RESTART_TREE_DIFFERS)
			code = move_aside(r, t, t->now.all[n].path);
	for (uint64_t n = 1; n < t->list->head.count && !code; n++)
		if (t->items[n].state == RESTART_TREE_DIFFERS)
			code = move_aside(r, t, image_tree_path(t->list, &t->list->entries[n]));
	return code;
}

/* ---- commit: made again ---- */

static int make_other(struct restart *r, const struct restart_tree *t, const struct image_tree_entry *e, const char *path)
{
	char first[2 * PATH_MAX];

	if (e->kind == IMAGE_TREE_SYMLINK)
		return symlink(t->list->texts + e->other, path);
	if (e->kind == IMAGE_TREE_FIFO)
		return mkfifo(path, 0600);
	return link(restart_tree_path(t, image_tree_path(t->list, &t->list->entries[e->other]), first), path);
}

static int make_one(struct restart *r, struct restart_tree *t, uint64_t n, const char *path)
{
	const struct image_tree_entry *e = &t->list->entries[n];
	char staged[2 * PATH_MAX];
	int err;

	if (e->kind == IMAGE_TREE_DIRECTORY)
		return restart_tree_make_directory(r->trees, path);
	if (e->kind == IMAGE_TREE_FILE) {
		snprintf(staged, sizeof(staged), "%s/%llu", t->staging, (unsigned long long)n);
		if (rename(staged, path) < 0 && !(restart_tree_open_parent(path) && !rename(staged, path)))
			return -errno;
		err = restart_tree_note(r->trees, NULL, path);
		return err ? err : fault_point(FAULT_RESTART_TREES_IN_COMMIT);
	}
	err = make_other(r, t, e, path) < 0 && !(restart_tree_open_parent(path) && !make_other(r, t, e, path)) ? -errno : 0;
	return err ? err : restart_tree_note(r->trees, NULL, path);
}

static int make_again(struct restart *r, struct restart_tree *t)
{
	char path[2 * PATH_MAX];
	int err = 0;

	for (uint64_t n = 1; n < t->list->head.count && !err; n++)
		if (restart_tree_to_be_put(t, n)) {
			err = make_one(r, t, n, restart_tree_path(t, image_tree_path(t->list, &t->list->entries[n]), path));
			t->put += t->list->entries[n].kind != IMAGE_TREE_DIRECTORY;
		}
	return err ? restart_tree_cannot(path, err) : 0;
}

/* Of directories from below, since making something in one changes its time. */
static void set_times(const struct restart_tree *t)
{
	char path[2 * PATH_MAX];
	struct stat st;

	for (uint64_t n = t->list->head.count; n-- > 0;) {
		const struct image_tree_entry *e = &t->list->entries[n];
		const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = e->mtime_sec, .tv_nsec = e->mtime_nsec } };

		if (t->items[n].state == RESTART_TREE_LEFT || e->flags & IMAGE_TREE_OPEN || e->kind == IMAGE_TREE_LINK ||
		    (e->kind != IMAGE_TREE_DIRECTORY && !t->items[n].touched && !restart_tree_to_be_put(t, n)))
			continue;
		restart_tree_path(t, image_tree_path(t->list, e), path);
		if (e->kind != IMAGE_TREE_SYMLINK && !lstat(path, &st) && (st.st_mode & 07777) != e->mode && chmod(path, e->mode) < 0)
			warn("%s: its old mode %04o", path, e->mode);
		utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
	}
}

static void say_and_sync(const struct restart_tree *t)
{
	int fd = open(t->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char size[32];

	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
	size_format((double)t->put_bytes, size, sizeof(size));
	if (t->moved)
		warnx("%s is put back as it was: %llu file%s (%s); what was changed or made since, %llu, is in %s now", t->root, (unsigned long long)t->put,
		      t->put == 1 ? "" : "s", size, (unsigned long long)t->moved, t->aside);
	else
		warnx("%s is put back as it was: %llu file%s (%s) had gone", t->root, (unsigned long long)t->put, t->put == 1 ? "" : "s", size);
}

/* ---- all of it ---- */

int restart_trees_put_back(struct restart *r)
{
	struct restart_trees *s = r->trees;
	int code = 0;

	for (size_t i = 0; i < s->count && !code; i++)
		if (restart_tree_differs(&s->all[i]))
			code = restart_tree_stage(r, &s->all[i]);
	if (!code && fault_point(FAULT_RESTART_TREES_STAGED) < 0)
		code = CLI_CANNOT;
	for (size_t i = 0; i < s->count && !code; i++)
		if (s->all[i].staging[0])
			code = clear_way(r, &s->all[i]);
	for (size_t i = 0; i < s->count && !code; i++)
		if (s->all[i].staging[0])
			code = make_again(r, &s->all[i]);
	for (size_t i = 0; i < s->count; i++) {
		restart_tree_empty_staging(&s->all[i]);
		if (!code)
			set_times(&s->all[i]);
		if (!code && s->all[i].staging[0])
			say_and_sync(&s->all[i]);
	}
	if (code)
		restart_trees_undo(r);
	return code;
}
