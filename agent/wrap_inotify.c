/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What path each watch of inotify was made with: the kernel tells a watch's number, events and inode, no path. A watch is noted by the descriptor and the
 * number; a descriptor may have been given another number since, so the plugin asks for all paths of a number and holds them against the inode.
 *
 * Owns the notes, newest first, in the arena, under a lock that no signal handler takes. One is forgotten when its watch is removed or replaced, and all of a
 * descriptor when that is made anew. Those of a watch that ends by itself, with its file, stay until then.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>

#include "agent/agent.h"
#include "agent/wrap.h"
#include "base/lock.h"

struct note {
	struct note *next;
	int fd, wd;
	uint32_t flags;
	char path[];
};

static struct note *notes;
static struct lock lock;

#define FLAGS ((uint32_t)(IN_ONESHOT | IN_EXCL_UNLINK | IN_DONT_FOLLOW))
#define ANY (-1)

static bool is_again(const struct note *a, const struct note *b)
{
	return !((a->flags ^ b->flags) & IN_DONT_FOLLOW) && !strcmp(a->path, b->path);
}

/* Forgets what @fd has noted of @wd (or ANY), and what @by takes the place of. */
static void forget(int fd, int wd, const struct note *by)
{
	for (struct note **at = &notes, *n; (n = *at);)
		if (n->fd == fd && (wd == ANY || n->wd == wd || (by && is_again(n, by)))) {
			*at = n->next;
			fermata_free(n);
		} else {
			at = &n->next;
		}
}

static struct note *make(int fd, int wd, const char *path, uint32_t mask)
{
	char cwd[AGENT_PATH_MAX * 8] = "";
	struct note *n;
	size_t length;

	if (*path != '/' && RAW2(SYS_getcwd, cwd, sizeof(cwd)) < 0)
		return NULL;
	length = strlen(cwd) + strlen(path) + 2;
	n = fermata_alloc(sizeof(*n) + length);
	if (!n)
		return NULL;
	n->fd = fd;
	n->wd = wd;
	n->flags = mask & FLAGS;
	fm_format(n->path, length, "%s%s%s", cwd, *cwd ? "/" : "", path);
	return n;
}

static void note(int fd, int wd, const char *path, uint32_t mask)
{
	struct note *n = make(fd, wd, path, mask);

	if (!n)
		return;
	lock_acquire(&lock);
	forget(fd, wd, n);
	n->next = notes;
	notes = n;
	lock_release(&lock);
}

const char *fermata_inotify_path(int wd, unsigned int nth, uint32_t *ret_flags)
{
	for (const struct note *n = notes; n; n = n->next)
		if (n->wd == wd && !nth--) {
			*ret_flags = n->flags;
			return n->path;
		}
	return NULL;
}

static struct note *move_note(struct note *n)
{
	char buf[PATH_MAX];
	const char *now = fermata_path_now(n->path, buf, sizeof(buf));
	struct note *moved;

	if (!now || now == n->path)
		return now ? n : NULL;
	moved = fermata_alloc(sizeof(*n) + strlen(now) + 1);
	if (!moved)
		return NULL;
	*moved = *n;
	memcpy(moved->path, now, strlen(now) + 1);
	fermata_free(n);
	return moved;
}

int wrap_inotify_restarted(void)
{
	for (struct note **at = &notes; *at; at = &(*at)->next) {
		struct note *n = move_note(*at);

		if (!n)
			return -ENOMEM;
		*at = n;
	}
	return 0;
}

/* In the child of a fork. */
void wrap_inotify_forked(void)
{
	lock = (struct lock){ 0 };
}

EXPORT int inotify_init1(int flags)
{
	int fd;

	WRAP_READY(inotify_init1);
	fd = real.inotify_init1(flags);
	if (fd < 0 || !agent.active)
		return fd;
	fermata_enter();
	if (fermata_in_device())
		fermata_device_fd_note(fd);
	lock_acquire(&lock);
	forget(fd, ANY, NULL);
	lock_release(&lock);
	fermata_leave();
	return fd;
}

EXPORT int inotify_init(void)
{
	return inotify_init1(0);
}

EXPORT int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	int wd;

	WRAP_READY(inotify_add_watch);
	if (!agent.active)
		return real.inotify_add_watch(fd, path, mask);
	fermata_enter();
	wd = real.inotify_add_watch(fd, path, mask);
	if (wd >= 0)
		note(fd, wd, path, mask);
	fermata_leave();
	return wd;
}

EXPORT int inotify_rm_watch(int fd, int wd)
{
	int r;

	WRAP_READY(inotify_rm_watch);
	if (!agent.active)
		return real.inotify_rm_watch(fd, wd);
	fermata_enter();
	r = real.inotify_rm_watch(fd, wd);
	if (!r) {
		lock_acquire(&lock);
		forget(fd, wd, NULL);
		lock_release(&lock);
	}
	fermata_leave();
	return r;
}

long wrap_inotify_syscall(long nr, const long *a)
{
	switch (nr) {
	case SYS_inotify_init:
		return inotify_init();
	case SYS_inotify_init1:
		return inotify_init1((int)a[0]);
	case SYS_inotify_add_watch:
		return inotify_add_watch((int)a[0], (const char *)a[1], (uint32_t)a[2]);
	default:
		return inotify_rm_watch((int)a[0], (int)a[1]);
	}
}
