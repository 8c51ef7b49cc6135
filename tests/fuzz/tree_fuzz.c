/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the list of a directory. It is read as it is, and once more with its digest made right. What is taken has paths that stay below the root, and names only what is before it.
 */
#include <limits.h>

#include "image/tree.h"
#include "tests/fuzz/fuzz.h"

static void check_entry(const struct image_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->entries[n];
	const char *path = image_tree_path(t, e);

	fuzz_require(e->kind >= IMAGE_TREE_DIRECTORY && e->kind <= IMAGE_TREE_LEFT_OUT);
	if (!n)
		return;
	fuzz_require(*path && *path != '/' && strlen(path) < PATH_MAX && strcmp(path, "..") && strncmp(path, "../", 3) && !strstr(path, "/../"));
	fuzz_require(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/.."));
	fuzz_require(e->parent < n && t->entries[e->parent].kind == IMAGE_TREE_DIRECTORY);
	if (e->kind == IMAGE_TREE_LINK)
		fuzz_require(e->other < n && t->entries[e->other].kind == IMAGE_TREE_FILE);
	if (e->kind == IMAGE_TREE_SYMLINK)
		fuzz_require(strlen(t->texts + e->other) > 0);
}

static void examine(const uint8_t *data, size_t size, bool seal)
{
	uint8_t *copy = fuzz_copy(data, size);
	struct image_tree_head head;
	struct image_tree t;

	if (seal && size >= sizeof(head)) {
		memcpy(&head, copy, sizeof(head));
		image_tree_digest(&head, copy + sizeof(head), size - sizeof(head), head.digest);
		memcpy(copy, &head, sizeof(head));
	}
	if (image_tree_parse(copy, size, &t))
		return;
	fuzz_require(t.texts[t.head.root] == '/');
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
