/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Directories of `launch --with` at a restart, by the same policy as open files (restart_files.c):
 *
 *   restore  what differs or is missing is put back as it was at the checkpoint, what was made since is taken out (restart_trees_put.c); both are kept aside
 *   check    nothing is touched; what differs is named, and the restart refused
 *   ignore   they are taken as they are
 *
 * Owns the list of directories. They are looked at when the coordinator has been started, so no process of the old job runs any more, and before open files: these are held
 * against the checkpoint in what then is in its place. Of a restart in parts, or of several hosts, the one that brings back the first process does it.
 */
#include "cli/restart_trees.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/restart_files.h"
#include "protocol/files.h"

#define NAMED_MAX 5

const char *restart_tree_path(const struct restart_tree *t, const char *path, char *buf)
{
	snprintf(buf, 2 * PATH_MAX, "%s%s%s", t->root, *path ? "/" : "", path);
	return buf;
}

static bool is_mine(const struct restart *r)
{
	return !r->host && !r->part_rank;
}

int restart_trees_collect(struct restart *r)
{
	const struct manifest *m = r->manifest;
	struct restart_trees *s = r->trees = calloc(1, sizeof(*s));
	struct image_error e;

	if (!s)
		return CLI_CANNOT;
	s->policy = r->contents->policy;
	for (size_t i = 0; i < m->tree_count && is_mine(r) && s->policy != MSG_FILES_IGNORE; i++) {
		struct restart_tree *t = &s->all[i];

		if (manifest_tree_open(m, i, &t->list, &e)) {
			warnx("%s", e.text);
			return e.fault == IMAGE_NEWER ? CLI_CANNOT : CLI_DAMAGED;
		}
		t->root = r->with.paths[i];
		t->items = calloc(t->list->head.count, sizeof(*t->items));
		s->count++;
		if (!t->items)
			return CLI_CANNOT;
	}
	return 0;
}

static void tree_free(struct restart_tree *t)
{
	tree_items_free(&t->now);
	free(t->items);
	free(t->extra);
	image_tree_free(t->list);
}

void restart_trees_free(struct restart *r)
{
	struct restart_trees *s = r->trees;

	for (size_t i = 0; s && i < s->count; i++)
		tree_free(&s->all[i]);
	for (size_t i = 0; s && i < s->step_count; i++) {
		free(s->steps[i].from);
		free(s->steps[i].to);
	}
	if (s)
		free(s->steps);
	free(s);
	r->trees = NULL;
}

/* It will be there as it was, or the restart refused: below a directory of the checkpoint, which others of a restart in parts may be about to put back. */
bool restart_trees_covers(const struct restart *r, const char *path)
{
	for (size_t i = 0; r->trees->policy == MSG_FILES_RESTORE && i < r->with.count; i++) {
		size_t n = strlen(r->with.paths[i]);

		if (!strncmp(path, r->with.paths[i], n) && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

/* ---- refuse ---- */

static void say_differences(const struct restart_tree *t)
{
	size_t named = 0, more = 0;
	char path[2 * PATH_MAX];

	for (uint64_t n = 0; n < t->list->head.count; n++) {
		uint8_t state = t->items[n].state;

		if (state != RESTART_TREE_DIFFERS && state != RESTART_TREE_MISSING)
			continue;
		if (named++ < NAMED_MAX)
			warnx("%s %s", restart_tree_path(t, image_tree_path(t->list, &t->list->entries[n]), path),
			      state == RESTART_TREE_MISSING ? "is missing" : "has changed since the checkpoint");
		else
			more++;
	}
	for (size_t n = 0; n < t->now.count; n++) {
		if (t->extra[n] != RESTART_TREE_DIFFERS)
			continue;
		if (named++ < NAMED_MAX)
			warnx("%s was not there at the checkpoint", restart_tree_path(t, t->now.all[n].path, path));
		else
			more++;
	}
	if (more)
		warnx("and %zu more in %s", more, t->root);
}

static bool has_contents(const struct restart_tree *t)
{
	for (uint64_t n = 0; n < t->list->head.count; n++) {
		const struct image_tree_entry *e = &t->list->entries[n];

		if (e->kind == IMAGE_TREE_FILE && !(e->flags & (IMAGE_TREE_SAVED | IMAGE_TREE_OPEN)))
			return false;
	}
	return true;
}

/* The policy is check, or the checkpoint does not have the contents. */
static int refuse(const struct restart *r)
{
	bool bad = false, saved = true;

	for (size_t i = 0; i < r->trees->count; i++) {
		const struct restart_tree *t = &r->trees->all[i];

		if (!restart_tree_differs(t) || (r->trees->policy == MSG_FILES_RESTORE && has_contents(t)))
			continue;
		say_differences(t);
		bad = true;
		saved &= has_contents(t);
	}
	if (bad)
		warnx("%s; --files=ignore takes directories as they are",
		      saved ? "--files=restore puts them back" : "the checkpoint does not have the contents of all files: put them back");
	return bad ? CLI_CANNOT : 0;
}

/* ---- who else writes there ---- */

/* Our own output is left where it is; so is what others write that was made since. */
static const char *judge_tree(struct restart_tree *t, const struct stat *st, bool ours, bool last, char *path)
{
	for (uint64_t n = 0; n < t->list->head.count; n++) {
		struct restart_tree_item *i = &t->items[n];

		if (i->state != RESTART_TREE_DIFFERS || i->dev != st->st_dev || i->ino != st->st_ino)
			continue;
		if (!ours)
			return restart_tree_path(t, image_tree_path(t->list, &t->list->entries[n]), path);
		i->state = RESTART_TREE_LEFT;
	}
	for (size_t n = 0; n < t->now.count; n++) {
		if (t->extra[n] != RESTART_TREE_DIFFERS || t->now.all[n].st.st_dev != st->st_dev || t->now.all[n].st.st_ino != st->st_ino)
			continue;
		restart_tree_path(t, t->now.all[n].path, path);
		if (!ours && !last)
			return path;
		t->extra[n] = RESTART_TREE_LEFT;
		warnx("%s, made since the checkpoint, is left where it is: it is being written to", path);
	}
	return NULL;
}

static const char *judge(struct restart *r, const struct stat *st, bool ours, bool last)
{
	static char path[2 * PATH_MAX];
	const char *bad = NULL;

	for (size_t i = 0; i < r->trees->count && !bad; i++)
		bad = judge_tree(&r->trees->all[i], st, ours, last, path);
	return bad;
}

/* ---- all of it ---- */

int restart_trees_settle(struct restart *r, void (*keep_alive)(void *arg), void *arg)
{
	struct restart_trees *s = r->trees;
	bool any = false;
	int code = 0;

	r->contents->alive = keep_alive;
	r->contents->alive_arg = arg;
	for (size_t i = 0; i < s->count; i++) {
		int one = restart_tree_compare(r, &s->all[i]);

		code = one ? one : code;
	}
	if (!code)
		code = refuse(r);
	for (size_t i = 0; i < s->count && !code; i++)
		any |= restart_tree_differs(&s->all[i]);
	if (!code && any && restart_outside_writes(r, judge))
		code = CLI_CANNOT;
	return code ? code : restart_trees_put_back(r);
}
