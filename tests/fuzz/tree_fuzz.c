/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the list of a directory. It is read as it is, and once more with its digest made right. What is taken has paths that stay below the root, and names only what is before it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "image/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_always)
{
	if (!true_always)
		abort();
}

static void check_entry(const struct image_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->entries[n];
	const char *path = image_tree_path(t, e);

	must(e->kind >= IMAGE_TREE_DIRECTORY && e->kind <= IMAGE_TREE_LEFT_OUT);
	if (!n)
		return;
	must(*path && *path != '/' && strlen(path) < PATH_MAX && strcmp(path, "..") && strncmp(path, "../", 3) && !strstr(path, "/../"));
	must(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/.."));
	must(e->parent < n && t->entries[e->parent].kind == IMAGE_TREE_DIRECTORY);
	if (e->kind == IMAGE_TREE_LINK)
		must(e->other < n && t->entries[e->other].kind == IMAGE_TREE_FILE);
	if (e->kind == IMAGE_TREE_SYMLINK)
		must(strlen(t->texts + e->other) > 0);
}

static void examine(const uint8_t *data, size_t size, bool seal)
{
	uint8_t *copy = malloc(size ? size : 1);
	struct image_tree_head head;
	struct image_tree t;

	must(copy);
	memcpy(copy, data, size);
	if (seal && size >= sizeof(head)) {
		memcpy(&head, copy, sizeof(head));
		image_tree_digest(&head, copy + sizeof(head), size - sizeof(head), head.digest);
		memcpy(copy, &head, sizeof(head));
	}
	if (image_tree_parse(copy, size, &t))
		return;
	must(t.texts[t.head.root] == '/');
	for (uint64_t n = 0; n < t.head.count; n++)
		check_entry(&t, n);
	free(t.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	examine(data, size, false);
	examine(data, size, true);
	return 0;
}
