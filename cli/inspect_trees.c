/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata inspect: the directories of a checkpoint (launch --with), in words and as JSON. Owns nothing. */
#include <err.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "image/manifest.h"
#include "image/tree.h"

static const char *const names[8] = { "?", "directory", "file", "symlink", "fifo", "link", "left out", "?" };

static const char *where(const struct image_tree *t, uint64_t n, char *buf, size_t size)
{
	const struct image_tree_entry *e = &t->entries[n];

	if (e->flags & IMAGE_TREE_SAVED)
		snprintf(buf, size, ", in %s/%" PRIu64, t->name, n);
	else
		snprintf(buf, size, "%s", e->flags & IMAGE_TREE_OPEN ? ", open, in an image" : e->flags & IMAGE_TREE_MOUNT ? ", another file system: left out" : "");
	return buf;
}

/* Odd bytes are shown as ?: a terminal is told what it may do by some. */
static void print_text(const char *text)
{
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
}

static void print_entry(const struct image_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->entries[n];
	char buf[64];

	printf("    %-9s %04o %12" PRIu64 " bytes  ", names[e->kind & 7], e->mode, e->size);
	print_text(image_tree_path(t, e));
	if (e->kind == IMAGE_TREE_SYMLINK || e->kind == IMAGE_TREE_LINK) {
		fputs(e->kind == IMAGE_TREE_SYMLINK ? " -> " : " = ", stdout);
		print_text(e->kind == IMAGE_TREE_SYMLINK ? t->texts + e->other : image_tree_path(t, &t->entries[e->other]));
	}
	puts(where(t, n, buf, sizeof(buf)));
}

static void print(const struct image_tree *t, bool verbose)
{
	uint64_t files = 0, bytes = 0, left = 0;
	char size[32];

	for (uint64_t n = 0; n < t->head.count; n++) {
		files += t->entries[n].kind == IMAGE_TREE_FILE;
		bytes += t->entries[n].size;
		left += t->entries[n].kind == IMAGE_TREE_LEFT_OUT || t->entries[n].flags & IMAGE_TREE_MOUNT;
	}
	size_format((double)bytes, size, sizeof(size));
	printf("%s: directory %s: %" PRIu64 " entries, %" PRIu64 " files, %s", t->name, t->texts + t->head.root, t->head.count, files, size);
	if (left)
		printf(", %" PRIu64 " left out", left);
	putchar('\n');
	for (uint64_t n = 0; n < t->head.count; n++)
		if (verbose || t->entries[n].kind == IMAGE_TREE_LEFT_OUT || t->entries[n].flags & IMAGE_TREE_MOUNT)
			print_entry(t, n);
}

json_t *inspect_tree_text(const char *text)
{
	json_t *o = json_string(text);
	char copy[PATH_MAX];

	if (o)
		return o;
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = copy; *p; p++)
		*p = *p & 0x80 ? '?' : *p;
	return json_string(copy);
}

static json_t *entry_json(const struct image_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->entries[n];
	json_t *o = json_pack("{s:s, s:o, s:i, s:I, s:I, s:b, s:b}", "kind", names[e->kind & 7], "path", inspect_tree_text(image_tree_path(t, e)), "mode", (int)e->mode,
			      "size", (json_int_t)e->size, "mtime", (json_int_t)e->mtime_sec, "saved", (e->flags & IMAGE_TREE_SAVED) != 0, "open",
			      (e->flags & IMAGE_TREE_OPEN) != 0);

	if (e->kind == IMAGE_TREE_SYMLINK)
		json_object_set_new(o, "target", inspect_tree_text(t->texts + e->other));
	if (e->kind == IMAGE_TREE_LINK)
		json_object_set_new(o, "target", inspect_tree_text(image_tree_path(t, &t->entries[e->other])));
	return o;
}

static json_t *tree_json(const struct image_tree *t)
{
	json_t *list = json_array();

	for (uint64_t n = 0; n < t->head.count; n++)
		json_array_append_new(list, entry_json(t, n));
	return json_pack("{s:s, s:s, s:o}", "name", t->name, "path", t->texts + t->head.root, "entries", list);
}

int inspect_trees(const struct manifest *m, bool verbose, json_t *list)
{
	struct image_error e;
	int code = CLI_OK;

	for (size_t i = 0; i < m->tree_count; i++) {
		struct image_tree *t;

		if (manifest_tree_open(m, i, &t, &e)) {
			warnx("%s", e.text);
			code = e.fault == IMAGE_NEWER ? CLI_CANNOT : CLI_DAMAGED;
			continue;
		}
		if (list)
			json_array_append_new(list, tree_json(t));
		else
			print(t, verbose);
		image_tree_free(t);
	}
	return code;
}
