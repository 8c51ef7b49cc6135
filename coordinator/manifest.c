/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * manifest.json: what a checkpoint consists of (doc/image-format.md names the images' own contents). Written once, before the
 * rename that commits; read when a restart is conducted, for the processes that have to come.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "coordinator/internal.h"

#define MANIFEST_FORMAT "fermata-checkpoint"
#define MANIFEST_VERSION 1

static json_t *manifest_hosts(const struct coordinator *c)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < c->host_count; i++)
		json_array_append_new(list, json_string(c->hosts[i]));
	return list;
}

static json_t *manifest_image(const struct member *m)
{
	char digest[2 * sizeof(m->digest) + 1];

	for (size_t i = 0; i < sizeof(m->digest); i++)
		snprintf(digest + 2 * i, 3, "%02x", m->digest[i]);
	return json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:s, s:I, s:I}", "name", m->image, "pid", (json_int_t)m->pid, "ppid",
			 (json_int_t)m->ppid, "host", (json_int_t)m->host, "comm", m->comm, "exe", m->exe, "bytes",
			 (json_int_t)m->bytes, "file_size", (json_int_t)m->file_size, "digest", digest, "contents", (json_int_t)m->contents,
			 "contents_bytes", (json_int_t)m->contents_bytes);
}

static json_t *manifest_build(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;
	json_t *images = json_array();
	uint32_t generation = 0;
	struct timespec now;
	struct member *m;
	char when[32];
	struct tm tm;

	list_each(m, &c->members, node) {
		if (m->waiting)
			continue;
		json_array_append_new(images, manifest_image(m));
		generation = m->generation > generation ? m->generation : generation;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_pack("{s:s, s:i, s:s, s:s, s:I, s:s, s:f, s:I, s:o, s:{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i}, s:o, s:o}", "format",
			 MANIFEST_FORMAT, "version", MANIFEST_VERSION, "fermata", FERMATA_VERSION, "job", o->job, "checkpoint",
			 (json_int_t)c->store.next, "time", when, "time_unix", (double)now.tv_sec + (double)now.tv_nsec / 1e9,
			 "generation", (json_int_t)generation, "hosts", manifest_hosts(c), "options", "compress", o->compress,
			 "rdma", o->rdma, "files", o->files, "external", o->external ? o->external : "fail", "text", o->text ? o->text : "ref", "on_failure", o->on_failure ? o->on_failure : "none", "on_signal",
			 o->on_signal ? o->on_signal : "none", "restarts", (int)o->restarts, "interval", (int)o->interval_s, "keep", (int)o->keep, "timeout_ms",
			 (int)o->timeout_ms, "images", images, "directories", directories_manifest(c));
}

static int manifest_put(const json_t *manifest, FILE *f)
{
	errno = 0;
	if (json_dumpf(manifest, f, JSON_INDENT(2)) < 0 || fflush(f) != 0 || fsync(fileno(f)) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

int manifest_write(struct coordinator *c, int dirfd)
{
	int fd = openat(dirfd, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), r;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w"); /* its buffer: the library hands over token by token */
	json_t *manifest;

	if (!f) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	manifest = manifest_build(c);
	r = manifest ? manifest_put(manifest, f) : -ENOMEM;
	json_decref(manifest);
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	return r;
}

static int manifest_compare(const void *a, const void *b)
{
	const struct expected *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* An image of an agent that did not keep the host's name says that of the machine that it is on now: then the pid has to do. */
struct expected *manifest_expected(struct coordinator *c, const char *host, uint32_t pid)
{
	struct expected wanted = { .pid = pid };
	struct expected *e = bsearch(&wanted, c->expected, c->expected_count, sizeof(*e), manifest_compare);

	if (!e)
		return NULL;
	while (e > c->expected && e[-1].pid == pid)
		e--;
	for (; e < c->expected + c->expected_count && e->pid == pid; e++)
		if (!e->come && (e->alone || !strcmp(c->hosts[e->host], host)))
			return e;
	return NULL;
}

static int manifest_host(struct coordinator *c, json_t *hosts, json_t *image)
{
	const char *name = json_string_value(json_array_get(hosts, (size_t)json_integer_value(json_object_get(image, "host"))));

	return host_number(c, name ? name : "");
}

static void manifest_mark_alone(struct coordinator *c)
{
	struct expected *e = c->expected;

	for (size_t i = 0; i < c->expected_count; i++)
		e[i].alone = (!i || e[i - 1].pid != e[i].pid) && (i + 1 == c->expected_count || e[i + 1].pid != e[i].pid);
}

static int manifest_take_images(struct coordinator *c, json_t *hosts, json_t *images)
{
	json_t *image;
	size_t i;

	c->expected_count = c->expected_missing = json_array_size(images);
	c->expected = calloc(c->expected_count + 1, sizeof(*c->expected));
	if (!c->expected)
		return -ENOMEM;
	json_array_foreach(images, i, image) {
		json_int_t pid = json_integer_value(json_object_get(image, "pid"));
		const char *comm = json_string_value(json_object_get(image, "comm"));
		const char *exe = json_string_value(json_object_get(image, "exe"));

		int host = manifest_host(c, hosts, image);

		if (pid <= 0 || pid > UINT32_MAX || host < 0)
			return -EINVAL;
		c->expected[i].host = (uint32_t)host;
		c->expected[i].pid = (uint32_t)pid;
		snprintf(c->expected[i].comm, sizeof(c->expected[i].comm), "%s", comm ? comm : "?");
		snprintf(c->expected[i].exe, sizeof(c->expected[i].exe), "%s", exe ? exe : "?");
	}
	qsort(c->expected, c->expected_count, sizeof(*c->expected), manifest_compare);
	manifest_mark_alone(c);
	return c->expected_count ? 0 : -EINVAL;
}

int manifest_expect(struct coordinator *c, const char *checkpoint)
{
	char path[RUNDIR_PATH_MAX + 32];
	json_error_t error;
	json_t *manifest;
	int r;

	snprintf(path, sizeof(path), "%s/manifest.json", checkpoint);
	manifest = json_load_file(path, 0, &error);
	if (!manifest) {
		log_error("%s: %s", path, error.text);
		return -EINVAL;
	}
	r = manifest_take_images(c, json_object_get(manifest, "hosts"), json_object_get(manifest, "images"));
	if (r < 0)
		log_error("%s: it names no processes", path);
	json_decref(manifest);
	return r;
}
