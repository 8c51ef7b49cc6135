/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first half of putting directories back (restart_trees_put.c): a copy of each file that is to be put back, below ROOT/.fermata-restoring-JOB, its sum checked, synced. Owns that
 * directory; nothing else is touched, but that a root which is gone is made.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/restart_files.h"
#include "cli/restart_trees.h"

void restart_tree_empty_staging(const struct restart_tree *t)
{
	DIR *d = t->staging[0] ? opendir(t->staging) : NULL;
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	if (t->staging[0])
		rmdir(t->staging);
}

static int set_owner_and_mode(int fd, const struct image_tree_entry *e)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = e->mtime_sec, .tv_nsec = e->mtime_nsec } };

	if (e->uid != geteuid() || e->gid != getegid())
		if (fchown(fd, e->uid, e->gid) < 0 && fchown(fd, (uid_t)-1, e->gid) < 0)
			errno = 0; /* it is ours then */
	return fchmod(fd, e->mode) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

/* 0 or an exit code. */
static int fill(struct restart *r, const struct restart_tree *t, uint64_t n, int from, int to)
{
	const struct image_tree_entry *e = &t->list->entries[n];
	bool cloned = !image_content_clone(from, to);
	char path[2 * PATH_MAX];
	uint64_t sum = 0;
	int err = restart_files_copy(r, cloned ? to : from, cloned ? -1 : to, e->size, &sum);

	restart_tree_path(t, image_tree_path(t->list, e), path);
	if (!err && e->flags & IMAGE_TREE_HAS_SUM && sum != e->sum) {
		warnx("%s/%s/%llu is damaged: the content of %s does not match its checksum", r->checkpoint, t->list->name, (unsigned long long)n, path);
		return CLI_DAMAGED;
	}
	if (!err)
		err = set_owner_and_mode(to, e);
	return err ? restart_tree_cannot(path, err) : 0;
}

static int stage_file(struct restart *r, struct restart_tree *t, uint64_t n)
{
	char from_path[PATH_MAX + 64], path[2 * PATH_MAX + 64];
	int from, to, code = CLI_CANNOT;
	struct stat st;

	snprintf(from_path, sizeof(from_path), "%s/%s/%llu", r->checkpoint, t->list->name, (unsigned long long)n);
	snprintf(path, sizeof(path), "%s/%llu", t->staging, (unsigned long long)n);
	from = open(from_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0 || fstat(from, &st) < 0 || (uint64_t)st.st_size != t->list->entries[n].size) {
		warnx("%s is damaged: %s; it is the content of %s/%s", from_path, from < 0 ? strerror(errno) : "it does not have the bytes that its list says", t->root,
		      image_tree_path(t->list, &t->list->entries[n]));
		if (from >= 0)
			close(from);
		return CLI_DAMAGED;
	}
	to = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		restart_tree_cannot(path, -errno);
	else
		code = fill(r, t, n, from, to);
	if (to >= 0)
		close(to);
	close(from);
	t->put_bytes += t->list->entries[n].size;
	return code;
}

static int make_staging(struct restart *r, struct restart_tree *t)
{
	int err = 0;

	if (t->items[0].state == RESTART_TREE_MISSING) {
		err = restart_tree_make_parents(r->trees, t->root, 1);
		if (!err)
			err = restart_tree_make_directory(r->trees, t->root);
	}
	snprintf(t->staging, sizeof(t->staging), "%s/" TREE_OURS "restoring-%s", t->root, r->job);
	restart_tree_empty_staging(t); /* of one that was killed */
	if (!err && mkdir(t->staging, 0700) < 0 && !(restart_tree_open_parent(t->staging) && !mkdir(t->staging, 0700)))
		err = -errno;
	return err ? restart_tree_cannot(t->root, err) : 0;
}

int restart_tree_stage(struct restart *r, struct restart_tree *t)
{
	int code = make_staging(r, t), fd;

	for (uint64_t n = 0; n < t->list->head.count && (!code || code == CLI_DAMAGED); n++)
		if (t->list->entries[n].kind == IMAGE_TREE_FILE && restart_tree_to_be_put(t, n)) {
			int one = stage_file(r, t, n);

			code = one ? one : code; /* all that is damaged is said */
		}
	if (code)
		return code;
	fd = open(t->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || syncfs(fd) < 0)
		code = restart_tree_cannot(t->root, -errno);
	if (fd >= 0)
		close(fd);
	return code;
}
