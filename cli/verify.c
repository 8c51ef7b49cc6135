/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata verify: reads every byte of a checkpoint, or of one image, against its checksums and the manifest.
 * Every image that is not whole is named, not the first one only.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "image/manifest.h"
#include "image/tree.h"

static const char verify_help[] =
	"Usage: fermata verify [-v] [--json] CHECKPOINT|IMAGE\n"
	"Checks every block of a checkpoint's images, their sizes and digests against its manifest, and the\n"
	"contents of files that it holds.\n"
	"CHECKPOINT: a checkpoint's directory, or a job's for the newest complete one in it.\n"
	"  -v, --verbose  a line for each image\n"
	"      --json     the result as JSON\n"
	"Exit status: 0 whole; 3 there is none; 5 it is of a newer version; 6 damaged: the image and block are named.\n";

static const struct option verify_long[] = {
	{ "verbose", no_argument, NULL, 'v' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct verify {
	bool json, verbose, drawn;
	json_t *images, *contents;
	uint64_t bytes, seen; /* of files: all of the checkpoint, those before the current image */
	size_t count, files, bad;
	int code;
	struct timespec told;
};

static int exit_code(enum image_fault fault, bool named_by_user)
{
	if (fault == IMAGE_NEWER)
		return CLI_CANNOT;
	return fault == IMAGE_MISSING && named_by_user ? CLI_NOTHING : CLI_DAMAGED;
}

static void draw(void *arg, uint64_t done, uint64_t total)
{
	struct verify *v = arg;
	struct timespec now;
	char have[32], all[32];

	clock_gettime(CLOCK_MONOTONIC, &now);
	if ((now.tv_sec - v->told.tv_sec) * 1000 + (now.tv_nsec - v->told.tv_nsec) / 1000000 < 100)
		return;
	v->told = now;
	size_format((double)(v->seen + done), have, sizeof(have));
	size_format((double)(v->bytes > v->seen + total ? v->bytes : v->seen + total), all, sizeof(all));
	fprintf(stderr, "\r\033[Kverifying: %s of %s", have, all);
	v->drawn = true;
}

static void clear(struct verify *v)
{
	if (v->drawn)
		fputs("\r\033[K", stderr);
	v->drawn = false;
}

static void note(struct verify *v, const char *name, const struct image *i, const struct image_error *e)
{
	json_t *o = json_pack("{s:s, s:b, s:s, s:s}", "name", name, "whole", e->fault == IMAGE_OK, "fault",
			      image_fault_name(e->fault), "text", e->text);

	if (e->block != UINT64_MAX)
		json_object_set_new(o, "block", json_integer((json_int_t)e->block));
	if (i) {
		json_object_set_new(o, "pid", json_integer(image_get_process(i)->pid));
		json_object_set_new(o, "file_size", json_integer((json_int_t)image_file_size(i)));
		json_object_set_new(o, "blocks", json_integer((json_int_t)image_get_blocks(i)->count));
	}
	json_array_append_new(v->images, o);
}

/* @i may be NULL when it could not be opened: then @e says why. */
static void check(struct verify *v, const char *name, struct image *i, struct image_error *e, bool named_by_user)
{
	bool tty = isatty(STDERR_FILENO);
	char size[32];
	int code;

	if (i)
		image_verify_progress(i, (unsigned int)sysconf(_SC_NPROCESSORS_ONLN), tty ? draw : NULL, v, e);
	clear(v);
	v->count++;
	if (e->fault != IMAGE_OK) {
		v->bad++;
		warnx("%s", e->text);
		code = exit_code(e->fault, named_by_user);
		v->code = code > v->code ? code : v->code;
	} else {
		v->seen += image_file_size(i);
		size_format((double)image_file_size(i), size, sizeof(size));
		if (v->verbose && !v->json)
			printf("%s: whole: process %u (%s), %s, %llu blocks\n", name, image_get_process(i)->pid,
			       image_get_process(i)->comm, size, (unsigned long long)image_get_blocks(i)->count);
	}
	note(v, name, i, e);
}

static void note_content(struct verify *v, const char *name, const char *path, uint64_t bytes, const struct image_error *e)
{
	char size[32];

	json_array_append_new(v->contents, json_pack("{s:s, s:o, s:b, s:s}", "name", name, "path", inspect_tree_text(path), "whole", e->fault == IMAGE_OK, "text",
						     e->text));
	v->files++;
	if (e->fault != IMAGE_OK) {
		v->bad++;
		v->code = CLI_DAMAGED;
		warnx("%s (of %s)", e->text, path);
		return;
	}
	v->seen += bytes;
	size_format((double)bytes, size, sizeof(size));
	if (v->verbose && !v->json)
		printf("%s: whole: content of %s, %s\n", name, path, size);
}

/* What it says of files that were open is in the images. */
static void check_tree(struct verify *v, const struct manifest *m, const struct image_tree *t)
{
	char name[64], path[2 * PATH_MAX];
	struct image_error e;

	for (uint64_t n = 0; n < t->head.count; n++) {
		if (!(t->entries[n].flags & IMAGE_TREE_SAVED))
			continue;
		image_tree_verify(t, m->path, n, &e);
		snprintf(name, sizeof(name), "%s/%llu", t->name, (unsigned long long)n);
		snprintf(path, sizeof(path), "%s/%s", t->texts + t->head.root, image_tree_path(t, &t->entries[n]));
		note_content(v, name, path, t->entries[n].bytes, &e);
	}
}

static void check_trees(struct verify *v, const struct manifest *m)
{
	for (size_t i = 0; i < m->tree_count; i++) {
		struct image_tree *t;
		struct image_error e;

		if (!manifest_tree_open(m, i, &t, &e)) {
			check_tree(v, m, t);
			image_tree_free(t);
			continue;
		}
		warnx("%s", e.text);
		v->bad++;
		v->code = e.fault == IMAGE_NEWER && !v->code ? CLI_CANNOT : CLI_DAMAGED;
	}
}

static void check_contents(struct verify *v, const struct manifest *m, const struct image *i)
{
	struct image_error e;

	for (size_t n = 0; n < image_count_contents(i); n++) {
		const struct image_content *c = image_get_content(i, n);

		if (!image_content_is_saved(c))
			continue;
		manifest_content_verify(m, i, c, &e);
		note_content(v, image_content_name(i, c), image_content_path(i, c), c->bytes, &e);
	}
}

static int finish(struct verify *v, const char *path, json_t *what)
{
	char size[32];

	if (v->json) {
		json_object_set_new(what, "path", json_string(path));
		json_object_set_new(what, "whole", json_boolean(!v->bad));
		json_object_set(what, "images", v->images);
		json_object_set(what, "files", v->contents);
		json_dumpf(what, stdout, JSON_INDENT(2));
		putchar('\n');
	} else if (!v->bad) {
		size_format((double)v->seen, size, sizeof(size));
		printf("%s: whole: %zu image%s, ", path, v->count, v->count == 1 ? "" : "s");
		if (v->files)
			printf("%zu file%s, ", v->files, v->files == 1 ? "" : "s");
		puts(size);
	} else if (v->files) {
		warnx("%s: %zu of %zu images and files are not whole", path, v->bad, v->count + v->files);
	} else {
		warnx("%s: %zu of %zu image%s not whole", path, v->bad, v->count, v->count == 1 ? " is" : "s are");
	}
	json_decref(what);
	json_decref(v->images);
	json_decref(v->contents);
	return v->code;
}

static int verify_image(struct verify *v, const char *path)
{
	struct image *i = NULL;
	struct image_error e;

	image_open(path, &i, &e);
	check(v, path, i, &e, true);
	image_free(i);
	return finish(v, path, json_object());
}

static int verify_checkpoint(struct verify *v, const char *path)
{
	struct manifest *m;
	struct image_error e;
	int r = manifest_open(path, &m, &e);

	if (r) {
		warnx("%s", e.text);
		json_decref(v->images);
		json_decref(v->contents);
		return exit_code(e.fault, true);
	}
	for (size_t n = 0; n < m->count; n++)
		v->bytes += m->images[n].file_size;
	for (size_t n = 0; n < m->count; n++) {
		struct image *i = NULL;

		manifest_image_open(m, &m->images[n], &i, &e);
		check(v, m->images[n].name, i, &e, false);
		if (i)
			check_contents(v, m, i);
		image_free(i);
	}
	check_trees(v, m);
	r = finish(v, m->path, json_pack("{s:s, s:I}", "job", m->job, "checkpoint", (json_int_t)m->checkpoint));
	manifest_free(m);
	return r;
}

int cmd_verify(int argc, char **argv)
{
	struct verify v = { 0 };
	struct stat st;
	int o;

	while ((o = getopt_long(argc, argv, "hv", verify_long, NULL)) != -1) {
		switch (o) {
		case 'v': v.verbose = true; break;
		case 'j': v.json = true; break;
		case 'h': fputs(verify_help, stdout); return CLI_OK;
		default: fputs(verify_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind != 1) {
		fputs(verify_help, stderr);
		return CLI_USAGE;
	}
	v.images = json_array();
	v.contents = json_array();
	if (!stat(argv[optind], &st) && !S_ISDIR(st.st_mode))
		return verify_image(&v, argv[optind]);
	return verify_checkpoint(&v, argv[optind]);
}
