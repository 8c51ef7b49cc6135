/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Directories that a checkpoint is to hold (--with): in WRITE, beside the processes' images, an order is carried out on a thread of the loop's pool, by who has been told how
 * (coordinator_options.save_directories). Owns coordinator.directories: the order of the checkpoint under way, or of the last one until the next begins.
 *
 * WRITE ends when it is done, too; a time-out counts from its last progress as from a member's. What a checkpoint that fails leaves behind cannot be removed while
 * the thread is still writing there: then the order, which is cancelled, owns the checkpoint's directory, and removes it when it is over. Nobody waits for that; the
 * next checkpoint has another directory, since the name is taken.
 *
 * Of the job's processes it is known which files they have open for writing: they publish it for each other (protocol/files.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"
#include "protocol/files.h"

struct directories {
	uv_work_t work;
	struct coordinator *c;
	struct directories_order order;
	char partial[sizeof(((struct store *)0)->partial)], dir[RUNDIR_PATH_MAX];
	uint64_t seen; /* of order.done, when it was last looked at */
	int error;
	bool running, abandoned;
};

static void directories_free(struct directories *d)
{
	if (!d)
		return;
	free(d->order.open);
	free(d);
}

static int directories_compare(const void *a, const void *b)
{
	const struct directories_open *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int directories_take_open(void *arg, const uint8_t *key, size_t length, const uint8_t *value, size_t value_length)
{
	struct directories_order *o = arg;
	struct files_key k;
	struct files_holder h;
	struct directories_open *more;

	if (length != sizeof(k) || value_length < sizeof(h) || memcmp(key, FILES_TAG, sizeof(k.tag)))
		return 0;
	memcpy(&k, key, sizeof(k));
	memcpy(&h, value, sizeof(h));
	more = o->open_count % 64 ? o->open : realloc(o->open, (o->open_count + 64) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	o->open = more;
	o->open[o->open_count++] = (struct directories_open){ k.dev, k.ino, h.mapped };
	return 0;
}

/* One entry a file, mapped if anybody has it mapped. */
static void directories_join_open(struct directories_order *o)
{
	size_t kept = 0;

	if (o->open_count)
		qsort(o->open, o->open_count, sizeof(*o->open), directories_compare);
	for (size_t i = 0; i < o->open_count; i++) {
		if (kept && !directories_compare(&o->open[kept - 1], &o->open[i]))
			o->open[kept - 1].mapped |= o->open[i].mapped;
		else
			o->open[kept++] = o->open[i];
	}
	o->open_count = kept;
}

static void directories_work(uv_work_t *work)
{
	struct directories *d = container_of(work, struct directories, work);

	d->error = d->c->options->save_directories(&d->order);
}

static void directories_done(uv_work_t *work, int status)
{
	struct directories *d = container_of(work, struct directories, work);
	struct coordinator *c = d->c;

	d->running = false;
	if (d->abandoned) {
		store_remove(d->partial);
		directories_free(d);
		c->directories_left--;
		run_check_leave(c);
	} else if (d->error) {
		conduct_fail(c, d->error, "%s", d->order.text);
	} else {
		conduct_check(c);
	}
}

int directories_begin(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;
	struct directories *d;
	int r;

	directories_free(c->directories);
	c->directories = NULL;
	if (!o->with_count || c->files == MSG_FILES_IGNORE)
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->c = c;
	memcpy(d->partial, c->store.partial, sizeof(d->partial));
	memcpy(d->dir, c->store.dir, sizeof(d->dir));
	d->order.paths = o->with;
	d->order.count = o->with_count;
	d->order.dir = d->dir;
	d->order.partial = d->partial;
	d->order.contents = c->files == MSG_FILES_RESTORE;
	/* Of one machine alone inodes say which file it is, and processes which one has it. */
	d->order.open_saved = c->place_count == 1 && c->files == MSG_FILES_RESTORE;
	r = names_each(c, directories_take_open, &d->order);
	directories_join_open(&d->order);
	if (!r)
		r = uv_queue_work(&c->loop, &d->work, directories_work, directories_done);
	if (r) {
		directories_free(d);
		return r;
	}
	d->running = true;
	c->directories = d;
	return 0;
}

bool directories_busy(const struct coordinator *c)
{
	return c->directories && c->directories->running;
}

bool directories_moved(struct coordinator *c)
{
	struct directories *d = c->directories;
	uint64_t done = directories_busy(c) ? d->order.done : 0;
	bool moved = directories_busy(c) && done != d->seen;

	if (moved)
		d->seen = done;
	return moved;
}

void directories_add_progress(const struct coordinator *c, uint64_t *done, uint64_t *total)
{
	if (!c->directories)
		return;
	*done += c->directories->order.done;
	*total += c->directories->order.total;
}

bool directories_abandon(struct coordinator *c)
{
	struct directories *d = c->directories;

	if (!directories_busy(c))
		return false;
	d->order.cancelled = true;
	d->abandoned = true;
	c->directories = NULL;
	c->directories_left++;
	return true;
}

void directories_sum(const struct coordinator *c, uint32_t *files, uint64_t *bytes)
{
	const struct directories *d = c->directories;

	for (unsigned int i = 0; d && d->order.contents && i < d->order.count; i++) {
		*files += (uint32_t)d->order.results[i].files;
		*bytes += d->order.results[i].bytes;
	}
}

json_t *directories_manifest(const struct coordinator *c)
{
	const struct directories *d = c->directories;
	json_t *list = json_array();

	for (unsigned int i = 0; d && i < d->order.count; i++) {
		const struct directories_result *r = &d->order.results[i];
		char name[32], digest[2 * sizeof(r->digest) + 1];

		snprintf(name, sizeof(name), "with-%u", i + 1);
		for (size_t k = 0; k < sizeof(r->digest); k++)
			snprintf(digest + 2 * k, 3, "%02x", r->digest[k]);
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "name", name, "path", d->order.paths[i], "digest", digest, "files",
						      (json_int_t)r->files, "bytes", (json_int_t)r->bytes, "unchanged", (json_int_t)r->linked,
						      "left_out", (json_int_t)r->left_out));
	}
	return list;
}

void directories_end(struct coordinator *c)
{
	directories_free(c->directories);
	c->directories = NULL;
}
