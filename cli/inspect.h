/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of `fermata inspect` share: one image, decoded. */
#pragma once

#include <jansson.h>

#include "image/manifest.h"

#define INSPECT_KINDS 7 /* enum image_mapping_kind, and 0 */

struct inspect_kind {
	size_t mappings;
	uint64_t bytes, saved; /* of address space; in the file, holes too */
};

extern const char *const inspect_kind_names[INSPECT_KINDS];
extern const char *const inspect_resource_names[4], *const inspect_content_names[5];

/* Sums mappings by kind. */
void inspect_sum(const struct image *i, struct inspect_kind ret[INSPECT_KINDS]);
/* "libc.so.6+0x1234" or "0x1234" */
void inspect_where(const struct image *i, uint64_t address, char *ret, size_t size);
/* "rw-" */
const char *inspect_rights(uint32_t prot);
/* The descriptors that belong to a resource: NULL if none. */
const struct image_fd *inspect_fds(const struct image_resource *r);
/* Children that have ended and are not waited for. */
void inspect_digest(const struct image *i, char ret[33]);
uint64_t inspect_saved(const struct image *i, uint64_t start, uint64_t end);

/* inspect_verbs.c: the objects of the verbs */
bool inspect_is_verbs(const struct image_resource *r);
void inspect_verbs_text(const struct image *i, bool verbose);
json_t *inspect_verbs_json(const struct image_resource *r);

json_t *inspect_json(const struct image *i);
void inspect_text(const struct image *i, const char *path, bool verbose);

/* inspect_resources.c */
void inspect_print_sysv(const struct image *i);
void inspect_print_contents(const struct image *i);
void inspect_print_resources(const struct image *i);

/* inspect_trees.c: directories; into @list, or in words if it is NULL: 0 or an exit code */
int inspect_trees(const struct manifest *m, bool verbose, json_t *list);
json_t *inspect_tree_text(const char *text); /* bytes that are no UTF-8 as ? */
