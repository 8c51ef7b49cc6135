/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the checkpoint that the user means: the job, the coordinator's options, and the images of the host that is brought back. */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int restart_find_images(struct restart *r)
{
	const struct manifest *m = r->manifest;

	r->processes = calloc(m->count, sizeof(*r->processes));
	if (!r->processes) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	for (size_t i = 0; i < m->count; i++) {
		struct restart_process *p = &r->processes[r->count];

		if (m->images[i].host != r->host)
			continue;
		p->named = &m->images[i];
		if (snprintf(p->path, sizeof(p->path), "%s/%s", m->path, p->named->name) >= (int)sizeof(p->path)) {
			warnx("%s/%s: its path is too long", m->path, p->named->name);
			return CLI_CANNOT;
		}
		r->count++;
	}
	return 0;
}

/* Where @path is now, in @buf of PATH_MAX bytes or @path itself; NULL: it is too long, which has been said. */
static const char *path_now(const struct restart *r, const char *path, char *buf)
{
	const char *now = path_map_apply(&r->moved, path, buf, PATH_MAX);

	if (!now)
		warnx("--map: where %s is now is too long a path", path);
	return now;
}

static int take_with(struct restart *r)
{
	const struct manifest *m = r->manifest;
	char buf[PATH_MAX];

	for (size_t i = 0; i < m->tree_count; i++) {
		const char *now = path_now(r, m->trees[i].path, buf);
		int err = !now ? -ENAMETOOLONG : r->moved.length ? options_with_move(&r->with, now) : options_with_take(&r->with, now);

		if (err < 0)
			return err == -ENOMEM ? CLI_CANNOT : CLI_USAGE;
	}
	return 0;
}

int restart_find(struct restart *r, const char *argument)
{
	struct image_error error;
	const struct manifest *m;

	if (manifest_open(argument, &r->manifest, &error) < 0) {
		warnx("%s", error.text);
		return error.fault == IMAGE_MISSING ? CLI_NOTHING : error.fault == IMAGE_NEWER ? CLI_CANNOT : CLI_DAMAGED;
	}
	m = r->manifest;
	snprintf(r->checkpoint, sizeof(r->checkpoint), "%s", m->path);
	snprintf(r->dir, sizeof(r->dir), "%s", m->dir);
	snprintf(r->job, sizeof(r->job), "%s", m->job);
	snprintf(r->compress, sizeof(r->compress), "%s", m->compress[0] ? m->compress : "none");
	if (!r->rdma[0])
		snprintf(r->rdma, sizeof(r->rdma), "%s", m->rdma[0] ? m->rdma : "auto");
	r->interval_s = m->interval_s;
	r->keep = m->keep;
	r->timeout_ms = m->timeout_ms;
	return take_with(r);
}
