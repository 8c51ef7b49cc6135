/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of a directory while it is made (tree_list.c), and finding files in one by inode. */
#pragma once

#include "cli/tree.h"
#include "image/tree.h"

struct tree_list {
	struct image_tree_entry *entries;
	size_t count;
	char *texts;
	size_t length, room;
	uint64_t root;
	int64_t seen_sec; /* when it was begun */
};

/* 0 or -errno; *@ret_failed: the item that it was at. */
int tree_list_make(const struct tree_items *items, const char *root, struct tree_list *ret, size_t *ret_failed);
int tree_list_write(const struct tree_list *l, int fd, uint8_t ret_digest[16]);
void tree_list_free(struct tree_list *l);

struct tree_inode {
	uint64_t dev, ino;
	size_t index;
};
void tree_inodes_sort(struct tree_inode *all, size_t count);
/* The one of the lowest index, or NULL. */
const struct tree_inode *tree_inodes_find(const struct tree_inode *all, size_t count, uint64_t dev, uint64_t ino);
