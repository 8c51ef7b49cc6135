/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories that a checkpoint holds: what is in one now (tree_walk.c), and saving them (tree_save.c). */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "coordinator/coordinator.h"

/* Names of ours in the root of such a directory: no part of it. */
#define TREE_OURS ".fermata-"

struct tree_item {
	char *path; /* relative to the root; "" the root itself */
	struct stat st;
	size_t parent; /* index of its directory */
	bool mount;    /* another file system lies on it: it has not been entered */
};

struct tree_items {
	struct tree_item *all; /* a directory before what is in it; within one by name */
	size_t count, room;
	char failed[PATH_MAX]; /* what could not be read */
};

/*
 * What is in @root, but for what is on another file system, the directory @without (NULL: none) and what is TREE_OURS. @go_on is asked before each, if there is one:
 * false gives up with -ECANCELED. 0, or -errno with @failed.
 */
int tree_walk(const char *root, const struct stat *without, bool (*go_on)(void *arg), void *arg, struct tree_items *ret);
void tree_items_free(struct tree_items *items);

/* Times of change tell whether a file there has changed: tree_save.c. */
bool tree_times_tell(const char *path);

/* struct coordinator_options.save_directories */
int tree_save_all(struct directories_order *order);
