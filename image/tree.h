/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory that a checkpoint holds (`fermata launch --with`): the list of what was in it, with-K.list (doc/image-format.md), and reading one. The
 * contents of its files lie beside it, in with-K/, under the numbers of their entries. Hosted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/reader.h"

#define IMAGE_TREE_MAGIC "FERMTREE"
#define IMAGE_TREE_VERSION 1
#define IMAGE_TREES_MAX 16 /* with-1 to with-16 */

enum image_tree_kind {
	IMAGE_TREE_DIRECTORY = 1,
	IMAGE_TREE_FILE = 2,
	IMAGE_TREE_SYMLINK = 3, /* texts: what it leads to */
	IMAGE_TREE_FIFO = 4,
	IMAGE_TREE_LINK = 5, /* another name of the file of entry @other */
	IMAGE_TREE_LEFT_OUT = 6, /* a socket, a device */
};

enum image_tree_flag {
	IMAGE_TREE_HAS_SUM = 1,
	IMAGE_TREE_SAVED = 2, /* with-K/<number> holds the content */
	IMAGE_TREE_OPEN = 4,  /* the job had it open for writing: its content is in CONTENTS of an image */
	IMAGE_TREE_MAPPED = 8, /* it was mapped for writing: its times do not tell whether it has changed */
	IMAGE_TREE_FRESH = 32, /* while it is made; never in a list */
	IMAGE_TREE_MOUNT = 16, /* a directory on which another file system lies: what is in it is not here */
};

struct image_tree_head {
	char magic[8]; /* IMAGE_TREE_MAGIC, without its NUL */
	uint32_t version, entry_size;
	uint64_t count, texts_length;
	int64_t seen_sec;    /* when it was listed */
	uint64_t root;	     /* text: the directory's path, absolute */
	uint8_t digest[16]; /* XXH3-128 of all of the list, with this field zero */
};

struct image_tree_entry {
	uint32_t kind, flags;
	uint32_t mode, nlink;
	uint32_t uid, gid;
	uint64_t size, bytes, sum; /* of a FILE; bytes: of data */
	int64_t mtime_sec, ctime_sec;
	uint32_t mtime_nsec, ctime_nsec;
	uint64_t dev, ino;
	uint64_t parent; /* number of its directory, less than its own; of the first one 0 */
	uint64_t path;	 /* text: relative to the root; of the first one empty */
	uint64_t other;	 /* SYMLINK: text; LINK: number of a FILE, less than its own */
};

_Static_assert(sizeof(struct image_tree_head) == 64, "on disk");
_Static_assert(sizeof(struct image_tree_entry) == 112, "on disk");

struct image_tree {
	char name[32]; /* with-K */
	uint8_t *data; /* all of the file */
	struct image_tree_head head;
	struct image_tree_entry *entries;
	const char *texts;
};

/* Checks every bound, and that paths stay below the root. 0 or -EBADMSG, -EPROTONOSUPPORT. @data of @length bytes becomes the tree's, or is freed. */
int image_tree_parse(uint8_t *data, size_t length, struct image_tree *ret);
/* Reads @checkpoint/with-@k.list. 0; -ENOENT; or -errno and @ret_error. */
int image_tree_open(const char *checkpoint, unsigned int k, struct image_tree **ret, struct image_error *ret_error);
struct image_tree *image_tree_free(struct image_tree *t);
const char *image_tree_path(const struct image_tree *t, const struct image_tree_entry *e);
void image_tree_digest(const struct image_tree_head *head, const void *rest, size_t length, uint8_t ret[16]);
/* Of the FILE number @n, which is SAVED: size and sum of its copy. 0, or -errno and @ret_error. */
int image_tree_verify(const struct image_tree *t, const char *checkpoint, uint64_t n, struct image_error *ret_error);
