/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the checkpoint that the user means and reads its manifest: images, job and the coordinator's options. */
#include "cli/restart.h"

#include <ctype.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_FORMAT "fermata-checkpoint"
#define MANIFEST_VERSION 1

static bool has_manifest(const char *dir)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/manifest.json", dir);
	return access(path, F_OK) == 0;
}

/* The greatest number among the complete checkpoints of a job's directory; 0: none. */
static unsigned long newest(const char *dir)
{
	unsigned long best = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		char path[PATH_MAX + 300], *end;
		unsigned long n = strtoul(e->d_name, &end, 10);

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (isdigit((unsigned char)e->d_name[0]) && !*end && n > best && has_manifest(path))
			best = n;
	}
	if (d)
		closedir(d);
	return best;
}

static int resolve(struct restart *r, const char *argument)
{
	unsigned long number;
	char *slash;

	if (!realpath(argument, r->checkpoint)) {
		warn("%s", argument);
		return CLI_NOTHING;
	}
	if (has_manifest(r->checkpoint)) {
		snprintf(r->dir, sizeof(r->dir), "%s", r->checkpoint);
		slash = strrchr(r->dir, '/');
		slash[slash == r->dir] = 0;
		return 0;
	}
	snprintf(r->dir, sizeof(r->dir), "%s", r->checkpoint);
	number = newest(r->dir);
	if (!number) {
		warnx("%s: there is no complete checkpoint in it", argument);
		return CLI_NOTHING;
	}
	if (snprintf(r->checkpoint, sizeof(r->checkpoint), "%s/%lu", r->dir, number) >= (int)sizeof(r->checkpoint)) {
		warnx("%s: its path is too long", argument);
		return CLI_NOTHING;
	}
	return 0;
}

static void copy_string(char *to, size_t size, json_t *object, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(object, key));

	snprintf(to, size, "%s", s ? s : otherwise);
}

static unsigned int get_number(json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));

	return v > 0 && v <= INT_MAX ? (unsigned int)v : 0;
}

static int take_images(struct restart *r, json_t *images)
{
	json_t *image;
	size_t i;

	r->processes = calloc(json_array_size(images) + 1, sizeof(*r->processes));
	if (!r->processes)
		return -ENOMEM;
	json_array_foreach(images, i, image) {
		const char *name = json_string_value(json_object_get(image, "name"));
		struct restart_process *p = &r->processes[i];

		if (!name || !*name || strchr(name, '/'))
			return -EINVAL;
		if (snprintf(p->path, sizeof(p->path), "%s/%s", r->checkpoint, name) >= (int)sizeof(p->path))
			return -ENAMETOOLONG;
		copy_string(p->digest, sizeof(p->digest), image, "digest", "");
		r->count++;
	}
	return r->count ? 0 : -EINVAL;
}

static int take_manifest(struct restart *r, json_t *m)
{
	json_t *options = json_object_get(m, "options");

	copy_string(r->job, sizeof(r->job), m, "job", "");
	copy_string(r->compress, sizeof(r->compress), options, "compress", "none");
	copy_string(r->rdma, sizeof(r->rdma), options, "rdma", "auto");
	r->interval_s = get_number(options, "interval");
	r->keep = get_number(options, "keep");
	r->timeout_ms = get_number(options, "timeout_ms");
	if (!r->job[0])
		return -EINVAL;
	return take_images(r, json_object_get(m, "images"));
}

int restart_find(struct restart *r, const char *argument)
{
	char path[PATH_MAX + 16];
	const char *format;
	json_error_t error;
	json_t *manifest;
	int code = resolve(r, argument);

	if (code)
		return code;
	snprintf(path, sizeof(path), "%s/manifest.json", r->checkpoint);
	manifest = json_load_file(path, 0, &error);
	format = json_string_value(json_object_get(manifest, "format"));
	code = CLI_DAMAGED;
	if (!manifest) {
		warnx("%s: line %d: %s", path, error.line, error.text);
	} else if (!format || strcmp(format, MANIFEST_FORMAT) != 0) {
		warnx("%s: it is not the manifest of a checkpoint", path);
	} else if (json_integer_value(json_object_get(manifest, "version")) > MANIFEST_VERSION) {
		warnx("%s: a newer fermata wrote it; this one knows version %d", path, MANIFEST_VERSION);
		code = CLI_CANNOT;
	} else if (take_manifest(r, manifest) < 0) {
		warnx("%s: it is damaged", path);
	} else {
		code = 0;
	}
	json_decref(manifest);
	return code;
}
