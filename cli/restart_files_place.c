/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts a file back that is still the one that it was at the checkpoint: what it holds is replaced, it keeps its inode, by which programs know their files, too (a database that
 * finds another one under its file's name stops writing), and its other names.
 *
 *   stage    the checkpoint's content is read and its sum checked; a copy of what is there is made as DIR/newer-N/FILE, synced
 *   commit   the file is emptied, and filled
 *   undo     it is emptied, and filled from the copy
 *
 * Invariant: what was there is whole in the file, or in the copy. A restart that is killed in between leaves the file half filled, and the next one puts it back.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/restart_files.h"

bool restart_file_is_in_place(const struct restart_file *f)
{
	return f->state == RESTART_FILE_DIFFERS && f->dev == f->content->dev && f->ino == f->content->ino && !faccessat(AT_FDCWD, f->path, W_OK, AT_EACCESS);
}

static int cannot(const struct restart_file *f, const char *what, int err)
{
	warnx("%s cannot be put back: %s: %s; --files=ignore leaves it as it is", f->path, what, strerror(-err));
	return CLI_CANNOT;
}

/* @to is empty. 0 or -errno */
static int fill(struct restart *r, int from, int to, uint64_t size)
{
	uint64_t sum;
	int err = image_content_clone(from, to);

	if (err)
		err = ftruncate(to, 0) < 0 ? -errno : restart_files_copy(r, from, to, size, &sum);
	return !err && fsync(to) < 0 ? -errno : err;
}

/* ---- stage ---- */

static int check_saved(struct restart *r, struct restart_file *f)
{
	int from = restart_file_open_saved(r, f), err = 0;
	uint64_t sum = f->content->sum;

	if (from < 0)
		return CLI_DAMAGED;
	if (f->content->flags & IMAGE_CONTENT_HAS_SUM)
		err = restart_files_copy(r, from, -1, f->content->size, &sum);
	close(from);
	if (err || sum == f->content->sum)
		return err ? cannot(f, image_content_name(f->image, f->content), err) : 0;
	warnx("%s/%s is damaged: the content of %s does not match its checksum", r->checkpoint, image_content_name(f->image, f->content), f->path);
	return CLI_DAMAGED;
}

static int copy_aside(struct restart *r, struct restart_file *f)
{
	int from = open(f->path, O_RDONLY | O_CLOEXEC), to, err;
	struct stat st;

	if (from < 0)
		return -errno;
	to = open(f->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0) {
		err = -errno;
		close(from);
		return err;
	}
	err = fill(r, from, to, f->size);
	if (!err && (fstat(from, &st) < 0 || fchmod(to, st.st_mode & 07777) < 0 || futimens(to, (struct timespec[]){ st.st_atim, st.st_mtim }) < 0))
		err = -errno;
	close(to);
	close(from);
	if (err)
		unlink(f->aside);
	return err;
}

int restart_file_stage_in_place(struct restart *r, struct restart_file *f)
{
	int code = check_saved(r, f), err = !code && f->size ? restart_file_name_aside(r, f, copy_aside) : 0;

	return err ? cannot(f, "a copy of what is there", err) : code;
}

/* ---- commit and undo ---- */

static int replace(struct restart *r, struct restart_file *f, int from, uint64_t size)
{
	int to = open(f->path, O_WRONLY | O_CLOEXEC | O_TRUNC), err;

	if (to < 0)
		return -errno;
	f->put = true;
	err = fault_point(FAULT_RESTART_FILES_IN_PLACE);
	err = err ? err : fill(r, from, to, size);
	close(to);
	return err;
}

int restart_file_put_in_place(struct restart *r, struct restart_file *f)
{
	int from = restart_file_open_saved(r, f), err;

	if (from < 0)
		return CLI_DAMAGED;
	err = replace(r, f, from, f->content->size);
	close(from);
	if (!err && chmod(f->path, f->content->mode) < 0)
		errno = 0; /* another's: its mode stays */
	if (!err)
		err = restart_file_set_times(-1, f->path, f->content);
	return err ? cannot(f, "writing", err) : 0;
}

static int fill_again(struct restart *r, struct restart_file *f)
{
	int from = open(f->aside, O_RDONLY | O_CLOEXEC), err;
	struct stat st;

	if (from < 0)
		return -errno;
	err = replace(r, f, from, f->size);
	if (!err && !fstat(from, &st))
		err = chmod(f->path, st.st_mode & 07777) < 0 || utimensat(AT_FDCWD, f->path, (struct timespec[]){ st.st_atim, st.st_mtim }, 0) < 0 ? -errno : 0;
	close(from);
	return err;
}

void restart_file_undo_in_place(struct restart *r, struct restart_file *f)
{
	int err = 0;

	if (f->put)
		err = f->aside[0] ? fill_again(r, f) : truncate(f->path, 0) < 0 ? -errno : 0;
	if (err)
		warnx("%s could not be made what it was: %s; %s%s", f->path, strerror(-err), f->aside[0] ? "that is in " : "it was empty", f->aside);
	else if (f->aside[0])
		unlink(f->aside);
}
