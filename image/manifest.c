/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads manifest.json of a checkpoint. Hosted. Owns struct manifest. A directory is a checkpoint when it has
 * that file: the coordinator writes it last, before the rename that commits. Nothing in it is trusted: names
 * of images stay within the directory.
 */
#include "image/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/tree.h"
#include "image/view.h"

#define MANIFEST_FORMAT "fermata-checkpoint"
#define MANIFEST_VERSION 1

static bool has_manifest(const char *directory)
{
	char path[PATH_MAX + NAME_MAX + 32];

	snprintf(path, sizeof(path), "%s/manifest.json", directory);
	return access(path, F_OK) == 0;
}

/* The greatest number among the complete checkpoints of a job's directory; 0: none. */
static uint64_t newest(const char *directory)
{
	DIR *d = opendir(directory);
	struct dirent *e;
	uint64_t best = 0;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX + NAME_MAX + 2], *end;
		uint64_t n = strtoull(e->d_name, &end, 10);

		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		if (isdigit((unsigned char)e->d_name[0]) && !*end && n > best && has_manifest(path))
			best = n;
	}
	if (d)
		closedir(d);
	return best;
}

static int resolve(struct manifest *m, const char *argument, struct image_error *e)
{
	const struct image named = { .name = (char *)argument };
	uint64_t number;
	char *slash;

	if (!realpath(argument, m->path)) {
		int r = -errno;

		image_say(&named, e, IMAGE_MISSING, "%s", strerror(-r));
		return r == -ENOTDIR ? -ENOENT : r;
	}
	memcpy(m->dir, m->path, sizeof(m->dir));
	if (has_manifest(m->path)) {
		slash = strrchr(m->dir, '/');
		slash[slash == m->dir] = 0;
		return 0;
	}
	number = newest(m->dir);
	if (!number)
		return image_say(&named, e, IMAGE_MISSING, "there is no complete checkpoint in it");
	if (snprintf(m->path, sizeof(m->path), "%s/%llu", m->dir, (unsigned long long)number) >= (int)sizeof(m->path))
		return image_say(&named, e, IMAGE_MISSING, "its path is too long");
	return 0;
}

static void take_text(char *to, size_t size, const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	snprintf(to, size, "%s", s ? s : "");
}

static uint64_t take_number(const json_t *object, const char *key, uint64_t most)
{
	json_int_t v = json_integer_value(json_object_get(object, key));

	return v > 0 && (uint64_t)v <= most ? (uint64_t)v : 0;
}

static bool take_digest(uint8_t digest[16], const char *text)
{
	if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
		return false;
	for (size_t i = 0; i < 16; i++) {
		unsigned int byte;

		sscanf(text + 2 * i, "%2x", &byte);
		digest[i] = (uint8_t)byte;
	}
	return true;
}

static bool take_trees(struct manifest *m, const json_t *list)
{
	m->trees = calloc(json_array_size(list) + 1, sizeof(*m->trees));
	for (size_t i = 0; m->trees && i < json_array_size(list); i++) {
		const json_t *o = json_array_get(list, i);
		const char *digest = json_string_value(json_object_get(o, "digest"));

		take_text(m->trees[i].path, sizeof(m->trees[i].path), o, "path");
		if (!digest || !take_digest(m->trees[i].digest, digest) || i == IMAGE_TREES_MAX)
			return false;
		m->tree_count++;
	}
	return m->trees;
}

static bool take_image(struct manifest_image *mi, const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name")), *digest = json_string_value(json_object_get(o, "digest"));

	if (!name || !*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") || strlen(name) > NAME_MAX)
		return false;
	take_text(mi->name, sizeof(mi->name), o, "name");
	take_text(mi->comm, sizeof(mi->comm), o, "comm");
	take_text(mi->exe, sizeof(mi->exe), o, "exe");
	mi->pid = (uint32_t)take_number(o, "pid", UINT32_MAX);
	mi->ppid = (uint32_t)take_number(o, "ppid", UINT32_MAX);
	mi->host = (uint32_t)take_number(o, "host", UINT32_MAX);
	mi->bytes = take_number(o, "bytes", INT64_MAX);
	mi->file_size = take_number(o, "file_size", INT64_MAX);
	mi->contents = (uint32_t)take_number(o, "contents", UINT32_MAX);
	mi->contents_bytes = take_number(o, "contents_bytes", INT64_MAX);
	mi->has_digest = digest && take_digest(mi->digest, digest);
	return !digest || mi->has_digest;
}

/* A host whose processes had all ended by then is none of this checkpoint's. */
static void drop_empty_hosts(struct manifest *m)
{
	for (size_t i = m->host_count; i-- > 0;) {
		if (m->hosts[i].count)
			continue;
		memmove(&m->hosts[i], &m->hosts[i + 1], (--m->host_count - i) * sizeof(*m->hosts));
		for (size_t k = 0; k < m->count; k++)
			m->images[k].host -= m->images[k].host > i;
	}
}

static bool take_hosts(struct manifest *m, const json_t *hosts)
{
	size_t named = json_array_size(hosts);

	m->host_count = named ? named : 1;
	m->hosts = calloc(m->host_count, sizeof(*m->hosts));
	if (!m->hosts)
		return false;
	for (size_t i = 0; i < named; i++) {
		const char *name = json_string_value(json_array_get(hosts, i));

		snprintf(m->hosts[i].name, sizeof(m->hosts[i].name), "%s", name ? name : "");
	}
	for (size_t i = 0; i < m->count; i++) {
		if (m->images[i].host >= m->host_count)
			return false;
		m->hosts[m->images[i].host].count++;
	}
	drop_empty_hosts(m);
	return true;
}

int manifest_host_find(const struct manifest *m, const char *name)
{
	for (size_t i = 0; i < m->host_count; i++)
		if (!strcmp(m->hosts[i].name, name))
			return (int)i;
	return -1;
}

static bool take(struct manifest *m, const json_t *o)
{
	const json_t *options = json_object_get(o, "options"), *images = json_object_get(o, "images");

	take_text(m->job, sizeof(m->job), o, "job");
	take_text(m->time, sizeof(m->time), o, "time");
	take_text(m->compress, sizeof(m->compress), options, "compress");
	take_text(m->rdma, sizeof(m->rdma), options, "rdma");
	take_text(m->files, sizeof(m->files), options, "files");
	take_text(m->external, sizeof(m->external), options, "external");
	take_text(m->text, sizeof(m->text), options, "text");
	take_text(m->on_failure, sizeof(m->on_failure), options, "on_failure");
	take_text(m->on_signal, sizeof(m->on_signal), options, "on_signal");
	m->checkpoint = take_number(o, "checkpoint", INT64_MAX);
	m->interval_s = (uint32_t)take_number(options, "interval", INT_MAX);
	m->keep = (uint32_t)take_number(options, "keep", INT_MAX);
	m->restarts = (uint32_t)take_number(options, "restarts", INT_MAX);
	m->timeout_ms = (uint32_t)take_number(options, "timeout_ms", INT_MAX);
	m->images = calloc(json_array_size(images) + 1, sizeof(*m->images));
	if (!m->images || !m->job[0])
		return false;
	for (size_t i = 0; i < json_array_size(images); i++)
		if (!take_image(&m->images[m->count++], json_array_get(images, i)))
			return false;
	return m->count > 0 && take_trees(m, json_object_get(o, "directories")) && take_hosts(m, json_object_get(o, "hosts"));
}

static int load(struct manifest *m, struct image_error *e)
{
	char path[PATH_MAX + 16];
	const struct image named = { .name = path };
	json_error_t error;
	const char *format;
	json_t *o;
	int r = 0;

	snprintf(path, sizeof(path), "%s/manifest.json", m->path);
	o = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	format = json_string_value(json_object_get(o, "format"));
	if (!o)
		r = image_say(&named, e, IMAGE_DAMAGED, "is damaged: line %d: %s", error.line, error.text);
	else if (!format || strcmp(format, MANIFEST_FORMAT) != 0)
		r = image_say(&named, e, IMAGE_DAMAGED, "is not the manifest of a checkpoint");
	else if (json_integer_value(json_object_get(o, "version")) > MANIFEST_VERSION)
		r = image_say(&named, e, IMAGE_NEWER, "is of a newer version; this program reads up to version %d",
			      MANIFEST_VERSION);
	else if (!take(m, o))
		r = image_say(&named, e, IMAGE_DAMAGED, "is damaged: it does not say what the checkpoint consists of");
	json_decref(o);
	return r;
}

int manifest_open(const char *path, struct manifest **ret, struct image_error *ret_error)
{
	struct manifest *m = calloc(1, sizeof(*m));
	int r;

	*ret_error = (struct image_error){ .block = UINT64_MAX };
	if (!m) {
		*ret_error = (struct image_error){ .fault = IMAGE_MISSING, .block = UINT64_MAX, .text = "no memory left" };
		return -ENOMEM;
	}
	r = resolve(m, path, ret_error);
	if (!r)
		r = load(m, ret_error);
	if (r)
		manifest_free(m);
	else
		*ret = m;
	return r;
}

struct manifest *manifest_free(struct manifest *m)
{
	if (!m)
		return NULL;
	free(m->hosts);
	free(m->images);
	free(m->trees);
	free(m);
	return NULL;
}

int manifest_image_open(const struct manifest *m, const struct manifest_image *mi, struct image **ret,
			struct image_error *ret_error)
{
	char path[PATH_MAX + NAME_MAX + 2];
	uint8_t digest[16];
	struct image *i;
	int r;

	snprintf(path, sizeof(path), "%s/%s", m->path, mi->name);
	r = image_open(path, &i, ret_error);
	if (r)
		return r;
	image_digest(i, digest);
	if (mi->file_size && mi->file_size != image_file_size(i))
		r = image_say(i, ret_error, IMAGE_DAMAGED, "has %llu bytes, the manifest says %llu",
			      (unsigned long long)image_file_size(i), (unsigned long long)mi->file_size);
	else if (mi->has_digest && memcmp(digest, mi->digest, sizeof(digest)))
		r = image_say(i, ret_error, IMAGE_DAMAGED, "is not the image that the manifest names: its digest differs");
	else if (mi->pid && mi->pid != image_get_process(i)->pid)
		r = image_say(i, ret_error, IMAGE_DAMAGED, "is of process %u, the manifest says %u",
			      image_get_process(i)->pid, mi->pid);
	if (r)
		image_free(i);
	else
		*ret = i;
	return r;
}

int manifest_tree_open(const struct manifest *m, size_t index, struct image_tree **ret, struct image_error *ret_error)
{
	const struct image named = { .name = (char *)m->path };
	int r = image_tree_open(m->path, (unsigned int)index + 1, ret, ret_error);

	if (r == 0 && memcmp((*ret)->head.digest, m->trees[index].digest, sizeof(m->trees[index].digest))) {
		r = image_say(&named, ret_error, IMAGE_DAMAGED, "is damaged: with-%zu.list is not the one that its manifest names", index + 1);
		*ret = image_tree_free(*ret);
	}
	return r;
}
