/* SPDX-License-Identifier: BSD-2-Clause */
/* What restart_trees*.c share: the directories of --with that a restart holds against the checkpoint, or puts back. */
#pragma once

#include <sys/stat.h>

#include "cli/restart.h"
#include "cli/tree.h"
#include "image/tree.h"

enum restart_tree_state {
	RESTART_TREE_SAME,
	RESTART_TREE_DIFFERS,
	RESTART_TREE_MISSING,
	RESTART_TREE_LEFT,    /* not our affair, or as it is on purpose */
};

struct restart_tree_item { /* of an entry of the list */
	uint8_t state;
	bool touched; /* SAME, but of another time of change, or mode */
	uint64_t dev, ino; /* of what is there */
};

struct restart_tree {
	struct image_tree *list;
	const char *root; /* where it is now */
	struct restart_tree_item *items;
	struct tree_items now;	/* what is in it */
	uint8_t *extra;		/* of each of these: enum restart_tree_state, DIFFERS being one that was made since */
	char staging[PATH_MAX + 128], aside[PATH_MAX + 128]; /* "": not made */
	uint64_t put, put_bytes, moved; /* for what is said */
};

/* What has been done, and will be undone, the last first, if the restart fails. */
struct restart_tree_step {
	char *from; /* NULL: @to was made */
	char *to;
};

struct restart_trees {
	uint32_t policy; /* enum msg_files */
	struct restart_tree all[IMAGE_TREES_MAX];
	size_t count;
	struct restart_tree_step *steps;
	size_t step_count, step_room;
};

/* "ROOT/PATH" in @buf of 2 * PATH_MAX bytes. */
const char *restart_tree_path(const struct restart_tree *t, const char *path, char *buf);

/* restart_trees_compare.c: 0 or an exit code, said */
int restart_tree_compare(struct restart *r, struct restart_tree *t);
bool restart_tree_differs(const struct restart_tree *t);

/* restart_trees_steps.c: 0 or -errno where nothing else is said */
bool restart_tree_to_be_put(const struct restart_tree *t, uint64_t n);
int restart_tree_cannot(const char *path, int err); /* an exit code, said */
int restart_tree_note(struct restart_trees *s, const char *from, const char *to);
/* @path could not be made or moved, as errno says: can it be now, since its directory lets us write in it? */
bool restart_tree_open_parent(const char *path);
int restart_tree_move(struct restart_trees *s, const char *from, const char *to); /* @to is not there */
int restart_tree_make_directory(struct restart_trees *s, const char *path);	   /* if it is not there */
int restart_tree_make_parents(struct restart_trees *s, const char *path, size_t from);

/* restart_trees_stage.c: 0 or an exit code, said */
int restart_tree_stage(struct restart *r, struct restart_tree *t);
void restart_tree_empty_staging(const struct restart_tree *t);

/* restart_trees_put.c: all or nothing, of all directories. 0 or an exit code, said */
int restart_trees_put_back(struct restart *r);
