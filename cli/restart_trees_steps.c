/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of putting directories back, each noted so that it can be undone, and what all of them need. Owns restart_trees.steps.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/restart_files.h"
#include "cli/restart_trees.h"

bool restart_tree_to_be_put(const struct restart_tree *t, uint64_t n)
{
	return (t->items[n].state == RESTART_TREE_DIFFERS || t->items[n].state == RESTART_TREE_MISSING) && !(t->list->entries[n].flags & IMAGE_TREE_OPEN);
}

int restart_tree_cannot(const char *path, int err)
{
	warnx("%s cannot be put back: %s; --files=ignore takes directories as they are", path, strerror(-err));
	return CLI_CANNOT;
}

int restart_tree_note(struct restart_trees *s, const char *from, const char *to)
{
	struct restart_tree_step *step;

	if (s->step_count == s->step_room) {
		step = realloc(s->steps, (s->step_room * 2 + 64) * sizeof(*step));
		if (!step)
			return -ENOMEM;
		s->steps = step;
		s->step_room = s->step_room * 2 + 64;
	}
	step = &s->steps[s->step_count];
	*step = (struct restart_tree_step){ from ? strdup(from) : NULL, strdup(to) };
	if (!step->to || (from && !step->from))
		return -ENOMEM;
	s->step_count++;
	return 0;
}

/* One that lets nobody write in it does so for the while: modes are set last. */
bool restart_tree_open_parent(const char *path)
{
	char parent[2 * PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
	return errno == EACCES && !stat(parent, &st) && (st.st_mode & 0700) != 0700 && !chmod(parent, (st.st_mode & 07777) | 0700);
}

/* @to is not there. */
int restart_tree_move(struct restart_trees *s, const char *from, const char *to)
{
	int r = restart_tree_note(s, from, to);

	if (r)
		return r;
	if (!rename(from, to) || (restart_tree_open_parent(from) && !rename(from, to)))
		return fault_point(FAULT_RESTART_TREES_IN_COMMIT);
	r = -errno;
	s->step_count--;
	free(s->steps[s->step_count].from);
	free(s->steps[s->step_count].to);
	return r;
}

int restart_tree_make_directory(struct restart_trees *s, const char *path)
{
	if (mkdir(path, 0700) < 0 && !(restart_tree_open_parent(path) && !mkdir(path, 0700)))
		return errno == EEXIST ? 0 : -errno;
	return restart_tree_note(s, NULL, path);
}

int restart_tree_make_parents(struct restart_trees *s, const char *path, size_t from)
{
	char part[2 * PATH_MAX];
	int r = 0;

	snprintf(part, sizeof(part), "%s", path);
	for (char *p = strchr(part + from, '/'); p && !r; p = strchr(p + 1, '/')) {
		*p = 0;
		r = access(part, F_OK) ? restart_tree_make_directory(s, part) : 0;
		*p = '/';
	}
	return r;
}

void restart_trees_undo(struct restart *r)
{
	struct restart_trees *s = r->trees;

	while (s && s->step_count) {
		struct restart_tree_step *step = &s->steps[--s->step_count];

		if (step->from ? rename(step->to, step->from) : unlink(step->to) && rmdir(step->to))
			warn("%s", step->to);
		free(step->from);
		free(step->to);
	}
	if (s && r->contents->aside[0])
		rmdir(r->contents->aside);
}
