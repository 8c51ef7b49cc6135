/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads what a checkpoint consists of: its manifest.json (doc/image-format.md). Hosted. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/reader.h"

struct image_content;

struct manifest_image {
	char name[NAME_MAX + 1]; /* within the checkpoint's directory */
	uint32_t pid, ppid;
	uint32_t host; /* index of its host in the manifest */
	char comm[16];
	char exe[512];
	uint64_t bytes;	    /* of memory, holes left out */
	uint64_t file_size; /* 0: not said */
	uint32_t contents; /* of files that it has saved, and their data */
	uint64_t contents_bytes;
	uint8_t digest[16]; /* image_digest() */
	bool has_digest;
};

struct manifest_host {
	char name[65]; /* node name; empty: not said */
	size_t count;  /* of its images */
};

struct manifest_tree { /* a directory of launch --with: its list is with-K.list, K from 1 (image/tree.h) */
	char path[PATH_MAX];
	uint8_t digest[16]; /* of that list */
};

struct manifest {
	char path[PATH_MAX]; /* the checkpoint's directory, absolute */
	char dir[PATH_MAX];  /* the job's: path's parent */
	char job[64];
	uint64_t checkpoint; /* its number */
	char time[32];
	char compress[16], rdma[16], files[16];
	char external[24]; /* empty: fail */
	char text[16];	   /* empty: ref */
	char on_failure[16], on_signal[16]; /* empty or none: none */
	uint32_t restarts;
	uint32_t interval_s, keep, timeout_ms;
	struct manifest_host *hosts; /* those that have images; at least 1 */
	size_t host_count;
	struct manifest_tree *trees;
	size_t tree_count;
	struct manifest_image *images;
	size_t count; /* at least 1 */
};

/* The index of the host called @name, or -1. */
int manifest_host_find(const struct manifest *m, const char *name);

/*
 * @path: a checkpoint's directory, or a job's: then the newest complete checkpoint in it. 0, or with
 * @ret_error filled in -ENOENT (nothing to restart), -EPROTONOSUPPORT (of a newer version), -EBADMSG
 * (damaged), or -errno.
 */
int manifest_open(const char *path, struct manifest **ret, struct image_error *ret_error);
struct manifest *manifest_free(struct manifest *m);
/*
 * Holds the copy of @c, an entry of @i, that the checkpoint @m has against its size and sum. 0, or -errno and @ret_error.
 */
int manifest_content_verify(const struct manifest *m, const struct image *i, const struct image_content *c, struct image_error *ret_error);
struct image_tree;
/* Reads the list of directory @index, and checks that it is the one that @m names. As image_tree_open(). */
int manifest_tree_open(const struct manifest *m, size_t index, struct image_tree **ret, struct image_error *ret_error);
/* Opens an image of @m, and checks that it is the one that @m names. As image_open(). */
int manifest_image_open(const struct manifest *m, const struct manifest_image *mi, struct image **ret,
			struct image_error *ret_error);
