/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts files back as they were at the checkpoint, all or none:
 *
 *   stage    beside each file a copy of what the checkpoint has, its sum checked, synced. Nothing is touched so far.
 *   commit   each gets its place by a rename; what was there keeps a name, DIR/newer-N/FILE
 *   undo     a restart that fails gives everything its place again
 *
 * Invariants: at each moment a file's name leads to all of the old content or to all of the new one, never to nothing that was there; and no
 * content is lost but that of an empty file. A restart that is killed leaves at most copies, which the next one of the job removes.
 *
 * A file that is still the one that it was is written to instead (restart_files_place.c): programs know their files by inode, too.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/restart_files.h"

#define ASIDE_MAX 100000

static bool to_be_put(const struct restart_file *f)
{
	return f->content->kind == IMAGE_CONTENT_SAVED && (f->state == RESTART_FILE_DIFFERS || f->state == RESTART_FILE_MISSING);
}

/* ---- stage ---- */

int restart_files_make_directories(const char *of)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", of);
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(path, 0777) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return -errno;
		*p = '/';
	}
	return 0;
}

/* Its name is that of the next restart's, too. Other hosts and parts of the job may have files in the same directory, and put them back at the same time. */
static int open_temp(struct restart *r, struct restart_file *f)
{
	int length = (int)(strrchr(f->path, '/') - f->path), fd;

	snprintf(f->temp, sizeof(f->temp), "%.*s/.fermata-restoring-%s-%zu-%zu-%zu", length, f->path, r->job, r->host, r->part_rank,
		 (size_t)(f - r->contents->all));
	if (f->state == RESTART_FILE_MISSING && restart_files_make_directories(f->path) < 0)
		return -errno;
	unlink(f->temp);
	fd = open(f->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		f->temp[0] = 0;
	return fd < 0 ? -errno : fd;
}

/* Access lists and the like, as far as they can be had. */
static void copy_attributes(const struct restart_file *f, int to)
{
	char names[4096], value[4096];
	ssize_t n = f->state == RESTART_FILE_DIFFERS ? listxattr(f->path, names, sizeof(names)) : 0, size;

	for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		size = getxattr(f->path, name, value, sizeof(value));
		if (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0)
			continue;
	}
}

int restart_file_set_times(int fd, const char *path, const struct image_content *c)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = c->mtime_sec, .tv_nsec = c->mtime_nsec } };

	int r = fd >= 0 ? futimens(fd, t) : utimensat(AT_FDCWD, path, t, 0);

	return r < 0 ? -errno : 0;
}

/* *@ret_sum: of what is there now. */
static int fill(struct restart *r, const struct restart_file *f, int from, int to, uint64_t *ret_sum)
{
	if (!image_content_clone(from, to))
		return restart_files_copy(r, to, -1, f->content->size, ret_sum);
	return restart_files_copy(r, from, to, f->content->size, ret_sum);
}

static int copy(struct restart *r, struct restart_file *f, int from, int to)
{
	const struct image_content *c = f->content;
	uint64_t sum = 0;
	int err = fill(r, f, from, to, &sum);

	if (!err && c->flags & IMAGE_CONTENT_HAS_SUM && sum != c->sum) {
		warnx("%s/%s is damaged: the content of %s does not match its checksum", r->checkpoint, image_content_name(f->image, c), f->path);
		return CLI_DAMAGED;
	}
	copy_attributes(f, to);
	if (c->uid != geteuid() || c->gid != getegid())
		if (fchown(to, c->uid, c->gid) < 0 && fchown(to, (uid_t)-1, c->gid) < 0)
			errno = 0; /* it is ours then */
	if (!err && (fchmod(to, c->mode) < 0 || fsync(to) < 0))
		err = -errno;
	if (!err)
		err = restart_file_set_times(to, "", c);
	if (err)
		warnx("%s (%llu bytes) cannot be put back: %s; --files=ignore leaves it as it is", f->path, (unsigned long long)c->size,
		      strerror(-err));
	return err ? CLI_CANNOT : 0;
}

int restart_file_open_saved(struct restart *r, const struct restart_file *f)
{
	char path[PATH_MAX + NAME_MAX + 2];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", r->checkpoint, image_content_name(f->image, f->content));
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size != f->content->size)) {
		close(fd);
		fd = -1;
		errno = ENODATA;
	}
	if (fd < 0)
		warn("%s, the content of %s", path, f->path);
	return fd;
}

static int stage(struct restart *r, struct restart_file *f)
{
	int from, to, code;

	f->in_place = restart_file_is_in_place(f);
	if (f->in_place)
		return restart_file_stage_in_place(r, f);
	from = restart_file_open_saved(r, f);
	if (from < 0)
		return CLI_DAMAGED;
	to = open_temp(r, f);
	if (to < 0) {
		warnx("%s cannot be put back: a copy beside it: %s; --files=ignore leaves it as it is", f->path, strerror(-to));
		code = CLI_CANNOT;
	} else {
		code = copy(r, f, from, to);
		close(to);
	}
	close(from);
	return code;
}

/* ---- commit and undo ---- */

/* DIR/newer-N: one of its own for each restart that needs it. */
int restart_files_make_aside(struct restart *r)
{
	struct restart_files *files = r->contents;

	for (unsigned int i = 1; !files->aside[0] && i < ASIDE_MAX; i++) {
		snprintf(files->aside, sizeof(files->aside), "%s/newer-%u", r->dir, i);
		if (!mkdir(files->aside, 0700))
			break;
		files->aside[0] = 0;
		if (errno != EEXIST)
			return -errno;
	}
	return files->aside[0] ? 0 : -EEXIST;
}

/* A second name for what is there. Where the file system has none: its only one. */
static int link_aside(struct restart *r, struct restart_file *f)
{
	if (!link(f->path, f->aside))
		return 0;
	if ((errno == EPERM || errno == ENOTSUP || errno == EMLINK) && !renameat2(AT_FDCWD, f->path, AT_FDCWD, f->aside, 1 /* RENAME_NOREPLACE */))
		return 0;
	return -errno;
}

static int name_aside(struct restart *r, struct restart_file *f, const char *stem, int (*make)(struct restart *r, struct restart_file *f))
{
	int err = -EEXIST;

	for (unsigned int i = 1; i < ASIDE_MAX && err == -EEXIST; i++) {
		int n = i == 1 ? snprintf(f->aside, sizeof(f->aside), "%s", stem) : snprintf(f->aside, sizeof(f->aside), "%s.%u", stem, i);

		err = n >= (int)sizeof(f->aside) ? -ENAMETOOLONG : make(r, f);
	}
	if (err)
		f->aside[0] = 0;
	return err;
}

static const char *directory_of(const struct restart_file *f, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.*s", (int)(strrchr(f->path, '/') - f->path), f->path);
	return path[0] ? path : "/";
}

/* A file of overlayfs may have another device than its directory; directories have the same. */
static bool is_on_system_of(const struct restart_file *f, const struct stat *directory)
{
	char path[PATH_MAX];
	struct stat st;

	return !stat(directory_of(f, path), &st) && st.st_dev == directory->st_dev;
}

/* In the job's directory, so that the program finds nothing new in its own; on another file system beside the file. */
int restart_file_name_aside(struct restart *r, struct restart_file *f, int (*make)(struct restart *r, struct restart_file *f))
{
	char stem[PATH_MAX + 64];
	struct stat st;
	int err = restart_files_make_aside(r);

	if (!err && stat(r->contents->aside, &st) < 0)
		err = -errno;
	if (err)
		return err;
	snprintf(stem, sizeof(stem), "%s%s", r->contents->aside, strrchr(f->path, '/'));
	err = is_on_system_of(f, &st) ? name_aside(r, f, stem, make) : -EXDEV;
	if (err != -EXDEV) /* or of two mounts of one file system */
		return err;
	snprintf(stem, sizeof(stem), "%s.fermata-newer", f->path);
	return name_aside(r, f, stem, make);
}

static int put(struct restart *r, struct restart_file *f)
{
	int err = fault_point(FAULT_RESTART_FILES_IN_COMMIT);

	if (!err && f->in_place)
		return restart_file_put_in_place(r, f);
	if (!err && f->state == RESTART_FILE_DIFFERS && f->size)
		err = restart_file_name_aside(r, f, link_aside);
	if (!err && rename(f->temp, f->path) < 0)
		err = -errno;
	if (err) {
		warnx("%s cannot be put back: %s; --files=ignore leaves it as it is", f->path, strerror(-err));
		return CLI_CANNOT;
	}
	f->temp[0] = 0;
	f->put = true;
	return 0;
}

static void say(const struct restart_file *f)
{
	char was[32], is[32];

	size_format((double)f->content->size, was, sizeof(was));
	size_format((double)f->size, is, sizeof(is));
	if (f->aside[0])
		warnx("%s is put back as it was (%s); what was there is %s now (%s)", f->path, was, f->aside, is);
	else
		warnx("%s is put back as it was (%s); it was %s", f->path, was, f->state == RESTART_FILE_MISSING ? "missing" : "empty");
}

static void sync_directory(const struct restart_file *f)
{
	char path[PATH_MAX];
	int fd = open(directory_of(f, path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

void restart_files_undo(struct restart *r)
{
	struct restart_files *files = r->contents;

	for (size_t n = 0; files && n < files->count; n++) {
		struct restart_file *f = &files->all[n];

		if (f->temp[0])
			unlink(f->temp);
		if (f->in_place)
			restart_file_undo_in_place(r, f);
		else if (f->aside[0] && !f->put && !access(f->path, F_OK))
			unlink(f->aside); /* of the two names */
		else if (f->aside[0] && rename(f->aside, f->path) < 0)
			warn("%s could not be made %s again", f->aside, f->path);
		else if (f->put && f->state == RESTART_FILE_MISSING)
			unlink(f->path);
		else if (f->put && !f->aside[0] && truncate(f->path, 0) < 0)
			warn("%s could not be emptied again", f->path);
		f->temp[0] = f->aside[0] = 0;
		f->put = false;
	}
	if (files && files->aside[0])
		rmdir(files->aside);
}

int restart_files_put_back(struct restart *r)
{
	struct restart_files *files = r->contents;
	int code = 0;

	for (size_t n = 0; n < files->count; n++) /* all reasons are said */
		if (to_be_put(&files->all[n])) {
			int one = stage(r, &files->all[n]);

			code = one ? one : code;
		}
	if (!code && fault_point(FAULT_RESTART_FILES_STAGED) < 0)
		code = CLI_CANNOT;
	for (size_t n = 0; n < files->count && !code; n++)
		if (to_be_put(&files->all[n]))
			code = put(r, &files->all[n]);
	for (size_t n = 0; n < files->count && !code; n++) {
		struct restart_file *f = &files->all[n];

		if (f->put)
			sync_directory(f);
		if (f->put)
			say(f);
		else if (f->state == RESTART_FILE_SAME && f->touched && f->content->kind == IMAGE_CONTENT_SAVED)
			restart_file_set_times(-1, f->path, f->content);
	}
	if (!code && files->aside[0])
		rmdir(files->aside); /* if nothing is in it: all went beside their files */
	return code;
}
