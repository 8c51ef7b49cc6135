/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checkpoint directory DIR of a job.
 *
 *   DIR/.lock         flock: one job writes here at a time; its text names the holder
 *   DIR/.N.partial/   under way: images as the processes write them, then manifest.json
 *   DIR/N/            complete. The rename is the commit: before it there is no checkpoint N, after it all of it is on disk.
 *   DIR/.N.pruned/    no longer a checkpoint, being removed
 *
 * The holder of the lock may remove .partial and .pruned directories at any time it has none under way: they are nobody's. The lock
 * is let go while the job has no process, so that a restart of a job that was just killed need not wait.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/macro.h"
#include "coordinator/internal.h"

#define REMOVALS 100

/* The number in "12", ".12.partial" or ".12.pruned", with the suffix; 0: none of these. */
static uint32_t store_number(const char *name, const char **ret_suffix)
{
	const char *digits = name + (name[0] == '.');
	char *end;
	unsigned long n;

	if (!isdigit((unsigned char)digits[0]) || digits[0] == '0')
		return 0;
	n = strtoul(digits, &end, 10);
	*ret_suffix = end;
	if (n > UINT32_MAX - 1 || (name[0] == '.' ? strcmp(end, ".partial") && strcmp(end, ".pruned") : *end != 0))
		return 0;
	return (uint32_t)n;
}

/* The files in it, and in its directories, which have none. */
static int store_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return -1;
	while ((e = readdir(d))) {
		char below[RUNDIR_PATH_MAX + NAME_MAX + 64];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !unlinkat(dirfd(d), e->d_name, 0) || errno != EISDIR)
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, e->d_name);
		store_empty(below);
		rmdir(below);
	}
	closedir(d);
	return 0;
}

/*
 * Removes a directory of files, and of directories of files. One process has failed, the others may be about to make their files in it: each makes a few, so after a few times it
 * stays empty, and who comes when it is gone fails with a checkpoint that has failed. Goes on over errors: what is left is found again at the next start.
 */
void store_remove(const char *path)
{
	int r = store_empty(path);

	if (r < 0)
		return;
	for (int times = 0; (r = rmdir(path)) < 0 && (errno == ENOTEMPTY || errno == EEXIST) && times < REMOVALS; times++)
		store_empty(path);
	if (r < 0)
		log_warn("%s could not be removed: %s", path, strerror(errno));
}

static void store_scan(struct store *s)
{
	DIR *d = opendir(s->dir);
	struct dirent *e;

	s->next = 1;
	while (d && (e = readdir(d))) {
		const char *suffix = "";
		uint32_t n = store_number(e->d_name, &suffix);
		char path[sizeof(s->partial) + NAME_MAX];

		if (!n)
			continue;
		if (!*suffix) {
			s->next = n >= s->next ? n + 1 : s->next;
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", s->dir, e->d_name);
		log_info("removing %s, left by an earlier run", path);
		store_remove(path);
	}
	if (d)
		closedir(d);
}

static int store_make(const char *dir)
{
	char path[RUNDIR_PATH_MAX];
	size_t len = (size_t)snprintf(path, sizeof(path), "%s", dir);

	for (size_t i = 1; i <= len; i++) {
		char keep = path[i];

		if (keep && keep != '/')
			continue;
		path[i] = 0;
		if (mkdir(path, 0700) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return -errno;
		path[i] = keep;
	}
	return 0;
}

static void store_report_holder(const struct store *s)
{
	char holder[128] = "";
	ssize_t n = pread(s->lock_fd, holder, sizeof(holder) - 1, 0);

	if (n > 0)
		holder[strcspn(holder, "\n")] = 0;
	log_error("checkpoint directory %s: %s writes its checkpoints there; give this job another --dir", s->dir,
		  n > 0 && holder[0] ? holder : "another job");
}

void store_release(struct store *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -EBADF;
}

int store_acquire(struct store *s)
{
	char path[sizeof(s->dir) + 8], holder[128], host[64] = "";
	struct stat st;
	int n;

	if (s->lock_fd >= 0)
		return 0;
	snprintf(path, sizeof(path), "%s/.lock", s->dir);
	do { /* again if the holder has removed the file between open and flock */
		store_release(s);
		s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (s->lock_fd < 0)
			return -errno;
		if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
			store_report_holder(s);
			store_release(s);
			return -EBUSY;
		}
	} while (fstat(s->lock_fd, &st) == 0 && !st.st_nlink);
	gethostname(host, sizeof(host) - 1);
	/* The number makes it the file's only: another host looks whether it is the same file there. */
	n = snprintf(holder, sizeof(holder), "the coordinator with pid %d on %s (%08x)\n", (int)getpid(), host, randombytes_random());
	if (ftruncate(s->lock_fd, 0) < 0 || pwrite(s->lock_fd, holder, (size_t)n, 0) != n || fsync(s->lock_fd) < 0)
		log_warn("%s: could not be written", path);
	store_scan(s);
	return 0;
}

int store_open(struct store *s, const char *dir)
{
	char probe[sizeof(((struct msg_phase *)0)->directory)];
	int r;

	s->lock_fd = -EBADF;
	/* Room for "/.4294967295.partial" in the message that carries it. */
	if (snprintf(s->dir, sizeof(s->dir), "%s", dir) + 24 >= (int)sizeof(probe)) {
		log_error("checkpoint directory %s: the path is too long; at most %zu characters", dir, sizeof(probe) - 25);
		return -ENAMETOOLONG;
	}
	s->created = access(dir, F_OK) < 0;
	r = store_make(dir);
	if (r == 0 && access(dir, R_OK | W_OK | X_OK) < 0)
		r = -errno;
	if (r < 0) {
		log_error("checkpoint directory %s: %s; give a --dir that you can write to", dir, strerror(-r));
		return r;
	}
	r = store_acquire(s);
	if (r < 0 && r != -EBUSY)
		log_error("checkpoint directory %s: %s", dir, strerror(-r));
	return r;
}

/* A job that took no checkpoint leaves no directory behind that was not there before. */
static void store_tidy(struct store *s)
{
	char path[sizeof(s->dir) + 8];

	if (!s->created || s->next != 1 || store_acquire(s) < 0 || s->next != 1)
		return;
	snprintf(path, sizeof(path), "%s/.lock", s->dir);
	unlink(path);
	rmdir(s->dir);
}

void store_close(struct coordinator *c)
{
	store_abandon(c);
	store_tidy(&c->store);
	store_release(&c->store);
}

int store_begin(struct store *s)
{
	int r = store_acquire(s);

	if (r < 0)
		return r;
	for (;; s->next++) {
		snprintf(s->final, sizeof(s->final), "%s/%u", s->dir, s->next);
		snprintf(s->partial, sizeof(s->partial), "%s/.%u.partial", s->dir, s->next);
		if (access(s->final, F_OK) == 0)
			continue;
		if (mkdir(s->partial, 0700) == 0)
			break;
		if (errno != EEXIST)
			return -errno;
	}
	s->open = true;
	return 0;
}

void store_abandon(struct coordinator *c)
{
	struct store *s = &c->store;

	if (!s->open)
		return;
	s->open = false;
	if (!directories_abandon(c))
		store_remove(s->partial);
}

static int store_sync_parent(const struct store *s)
{
	int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* Manifest, then everything on disk, then the rename. The first step that fails is named by *@ret_step. */
static int store_commit_steps(struct coordinator *c, int dirfd, const char **ret_step)
{
	struct store *s = &c->store;
	int r;

	*ret_step = "writing manifest.json";
	r = fault_point(FAULT_COORDINATOR_BEFORE_MANIFEST);
	if (r == 0)
		r = manifest_write(c, dirfd);
	if (r == 0)
		r = fault_point(FAULT_COORDINATOR_AFTER_MANIFEST);
	if (r < 0)
		return r;
	*ret_step = "syncing it";
	if (fsync(dirfd) < 0)
		return -errno;
	*ret_step = "renaming it";
	r = fault_point(FAULT_COORDINATOR_BEFORE_RENAME);
	if (r == 0 && rename(s->partial, s->final) < 0)
		r = -errno;
	return r;
}

int store_commit(struct coordinator *c)
{
	struct store *s = &c->store;
	const char *step = "opening it";
	int dirfd = open(s->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	r = dirfd < 0 ? -errno : store_commit_steps(c, dirfd, &step);
	if (dirfd >= 0)
		close(dirfd);
	if (r < 0) {
		conduct_fail(c, r, "checkpoint directory %s: %s failed: %s", s->partial, step, strerror(-r));
		return r;
	}
	s->open = false;
	fault_point(FAULT_COORDINATOR_AFTER_RENAME);
	r = store_sync_parent(s);
	if (r < 0)
		log_warn("%s: the directory could not be synced: %s", s->dir, strerror(-r));
	return 0;
}

/* ---- pruning, on a thread of the loop's pool: unlinking gigabytes takes its time ---- */

struct prune {
	uv_work_t work;
	struct coordinator *c;
	char dir[RUNDIR_PATH_MAX];
	uint32_t keep;
};

static int store_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Numbers of the complete checkpoints, newest first. */
static size_t store_list(const char *dir, uint32_t **ret)
{
	size_t count = 0, room = 0;
	DIR *d = opendir(dir);
	struct dirent *e;

	*ret = NULL;
	while (d && (e = readdir(d))) {
		const char *suffix = "";
		uint32_t n = store_number(e->d_name, &suffix);

		if (!n || *suffix)
			continue;
		if (count == room) {
			uint32_t *more = realloc(*ret, (room = room * 2 + 16) * sizeof(**ret));

			if (!more)
				break;
			*ret = more;
		}
		(*ret)[count++] = n;
	}
	if (d)
		closedir(d);
	if (count)
		qsort(*ret, count, sizeof(**ret), store_compare);
	return count;
}

static void store_prune_work(uv_work_t *work)
{
	struct prune *p = container_of(work, struct prune, work);
	uint32_t *numbers;
	size_t count = store_list(p->dir, &numbers);

	for (size_t i = p->keep; i < count; i++) {
		char from[sizeof(p->dir) + 32], to[sizeof(p->dir) + 32];

		snprintf(from, sizeof(from), "%s/%u", p->dir, numbers[i]);
		snprintf(to, sizeof(to), "%s/.%u.pruned", p->dir, numbers[i]);
		if (rename(from, to) < 0) {
			log_warn("%s could not be removed: %s", from, strerror(errno));
			continue;
		}
		fault_point(FAULT_COORDINATOR_IN_PRUNE);
		store_remove(to);
	}
	free(numbers);
}

static void store_prune_done(uv_work_t *work, int status)
{
	struct prune *p = container_of(work, struct prune, work);

	struct coordinator *c = p->c;
	bool again = c->prune_again;

	free(p);
	c->pruning = c->prune_again = false;
	if (again)
		store_prune(c);
	run_check_leave(c);
}

void store_prune(struct coordinator *c)
{
	struct prune *p;

	c->prune_again = c->pruning;
	if (!c->options->keep || c->pruning || fault_point(FAULT_COORDINATOR_BEFORE_PRUNE) < 0)
		return;
	p = calloc(1, sizeof(*p));
	if (!p)
		return;
	p->c = c;
	p->keep = c->options->keep;
	snprintf(p->dir, sizeof(p->dir), "%s", c->store.dir);
	c->pruning = uv_queue_work(&c->loop, &p->work, store_prune_work, store_prune_done) == 0;
	if (!c->pruning)
		free(p);
}
