/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The contents of files at a restart, by policy:
 *
 *   restore  what differs is put back as it was at the checkpoint (restart_files_put.c); what was there stays beside it
 *   check    nothing is touched; what differs is named, and the restart refused
 *   ignore   the files are taken as they are
 *
 * Files without names come back by whoever makes them again (agent/content_put.c), whatever the policy.
 * Owns the list of files. It is looked at when the coordinator has been started, so no process of the old job runs any more.
 */
#include "cli/restart_files.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/files.h"

/* ---- which ---- */

static int add(struct restart *r, const struct image *i, const struct image_content *c)
{
	struct restart_files *f = r->contents;
	struct restart_file *more = realloc(f->all, (f->count + 1) * sizeof(*more));
	const char *path = image_content_path(i, c);

	if (!more)
		return CLI_CANNOT;
	f->all = more;
	more = &f->all[f->count];
	memset(more, 0, sizeof(*more));
	more->image = i;
	more->content = c;
	if (!realpath(path, more->path) && snprintf(more->path, sizeof(more->path), "%s", path) >= (int)sizeof(more->path))
		return CLI_CANNOT;
	f->count++;
	return 0;
}

/* What has been only read is held against the checkpoint, but never put back. A file without a name is its maker's matter. */
static bool is_of_interest(const struct restart_files *f, const struct image_content *c)
{
	if (c->kind == IMAGE_CONTENT_DELETED)
		return false;
	return f->policy == MSG_FILES_CHECK || (f->policy == MSG_FILES_RESTORE && c->kind != IMAGE_CONTENT_STATED);
}

int restart_files_collect(struct restart *r)
{
	struct restart_files *f = calloc(1, sizeof(*f));
	const char *word = r->files ? r->files : r->manifest->files;
	int code = 0;

	r->contents = f;
	if (!f || !(f->buffer = malloc(IMAGE_CONTENT_BLOCK))) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	f->policy = *word ? files_parse(word) : MSG_FILES_IGNORE;
	for (size_t n = 0; n < r->count; n++)
		for (size_t k = 0; k < image_count_contents(r->processes[n].image) && !code; k++) {
			const struct image_content *c = image_get_content(r->processes[n].image, k);

			if (is_of_interest(f, c))
				code = add(r, r->processes[n].image, c);
		}
	if (code)
		warnx("the list of files is too long");
	return code;
}

void restart_files_free(struct restart *r)
{
	if (r->contents) {
		free(r->contents->all);
		free(r->contents->buffer);
	}
	free(r->contents);
	r->contents = NULL;
}

bool restart_files_covers(const struct restart *r, const char *path)
{
	for (size_t n = 0; n < r->contents->count; n++)
		if (!strcmp(image_content_path(r->contents->all[n].image, r->contents->all[n].content), path))
			return true;
	return false;
}

bool restart_files_restores(const struct restart *r)
{
	return r->contents->policy == MSG_FILES_RESTORE;
}

/* ---- what has become of them ---- */

static int alive(void *arg, uint64_t at)
{
	const struct restart_files *f = arg;

	(void)at;
	f->alive(f->alive_arg);
	return 0;
}

int restart_files_copy(struct restart *r, int from, int to, uint64_t size, uint64_t *ret_sum)
{
	struct image_content_work w = { .buffer = r->contents->buffer, .progress = alive, .arg = r->contents };
	uint64_t bytes;
	bool reading;

	return image_content_copy(&w, from, to, size, ret_sum, &bytes, &reading);
}

/* The sum that it had: known, or that of the copy. */
static int saved_sum(struct restart *r, const struct restart_file *f, uint64_t *ret)
{
	char path[PATH_MAX + NAME_MAX + 2];
	int fd, err;

	*ret = f->content->sum;
	if (f->content->flags & IMAGE_CONTENT_HAS_SUM)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", r->checkpoint, image_content_name(f->image, f->content));
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	err = restart_files_copy(r, fd, -1, f->content->size, ret);
	close(fd);
	return err;
}

static bool has_content(struct restart *r, const struct restart_file *f)
{
	uint64_t is, was;
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOATIME); /* that it is looked at is nothing that the program may see */
	bool same;

	if (fd < 0 && errno == EPERM)
		fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	same = !restart_files_copy(r, fd, -1, f->size, &is) && !saved_sum(r, f, &was) && is == was;
	close(fd);
	return same;
}

/* 0 or an exit code. */
static int compare(struct restart *r, struct restart_file *f)
{
	const struct image_content *c = f->content;
	struct stat st;

	if (stat(f->path, &st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR) {
			warn("%s", f->path);
			return CLI_CANNOT;
		}
		f->state = RESTART_FILE_MISSING;
		return 0;
	}
	if (!S_ISREG(st.st_mode)) {
		warnx("%s was a regular file at the checkpoint, and is none any more", f->path);
		return CLI_CANNOT;
	}
	f->size = (uint64_t)st.st_size;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->touched = st.st_mtim.tv_sec != c->mtime_sec || st.st_mtim.tv_nsec != c->mtime_nsec;
	if (f->size != c->size || (c->kind == IMAGE_CONTENT_STATED ? f->touched : !has_content(r, f)))
		f->state = RESTART_FILE_DIFFERS;
	return 0;
}

static void say_difference(const struct restart_file *f)
{
	if (f->state == RESTART_FILE_MISSING)
		warnx("%s is missing", f->path);
	else if (f->size != f->content->size)
		warnx("%s has changed since the checkpoint: it had %llu bytes, it has %llu", f->path, (unsigned long long)f->content->size,
		      (unsigned long long)f->size);
	else
		warnx("%s has changed since the checkpoint", f->path);
}

/* The policy is check, or the checkpoint does not have the content. */
static int refuse(const struct restart *r)
{
	bool bad = false, saved = true;

	for (size_t n = 0; n < r->contents->count; n++) {
		const struct restart_file *f = &r->contents->all[n];

		if (f->state == RESTART_FILE_SAME ||
		    (r->contents->policy == MSG_FILES_RESTORE && f->content->kind == IMAGE_CONTENT_SAVED))
			continue;
		say_difference(f);
		bad = true;
		saved &= f->content->kind == IMAGE_CONTENT_SAVED;
	}
	if (bad)
		warnx("%s; --files=ignore takes the files as they are",
		      saved ? "--files=restore puts them back" : "the checkpoint does not have the contents of all of them: put the files back");
	return bad ? CLI_CANNOT : 0;
}

/* Files without names: whether what they had is there. Their makers check the sums, when they read it. 0 or an exit code. */
static int check_deleted(const struct restart *r)
{
	char path[PATH_MAX + NAME_MAX + 2];
	struct stat st;
	int code = 0;

	for (size_t n = 0; n < r->count; n++) {
		const struct image *i = r->processes[n].image;

		for (size_t k = 0; k < image_count_contents(i); k++) {
			const struct image_content *c = image_get_content(i, k);

			if (c->kind != IMAGE_CONTENT_DELETED)
				continue;
			snprintf(path, sizeof(path), "%s/%s", r->checkpoint, image_content_name(i, c));
			if (stat(path, &st) == 0 && (uint64_t)st.st_size == c->size)
				continue;
			warnx("%s is damaged: it does not have the %llu bytes of %s", path, (unsigned long long)c->size, image_content_path(i, c));
			code = CLI_DAMAGED;
		}
	}
	return code;
}

int restart_files_settle(struct restart *r, void (*keep_alive)(void *arg), void *arg)
{
	int code = 0;

	r->contents->alive = keep_alive;
	r->contents->alive_arg = arg;
	code = check_deleted(r);
	for (size_t n = 0; n < r->contents->count; n++) {
		int one = compare(r, &r->contents->all[n]);

		code = one ? one : code;
	}
	if (!code)
		code = refuse(r);
	if (!code && r->contents->policy == MSG_FILES_RESTORE)
		code = restart_files_check_outside(r);
	if (!code && r->contents->policy == MSG_FILES_RESTORE)
		code = restart_files_put_back(r);
	return code;
}
