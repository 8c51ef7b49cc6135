/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stat and its kin: files of a device that its library stands in for (device_file.c), the numbers by which the program knows files that a restart had to make again (inodes.c), and how many
 * threads it has: a directory of tasks has a link for each, and some (Chromium, before it forks) go no further when they are not alone. No state.
 *
 * What the kernel said before a restart is not looked up in what is known since: the call is made once more then. It may wait (for a server), so it is outside of enter.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/inodes.h"
#include "agent/wrap.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout under two names");

/* False: a restart was in between. A device's library knows files as its fellows in other processes do. */
static bool show(uint32_t generation, uint64_t *dev, uint64_t *ino)
{
	bool now;

	if (unlikely(fermata_in_device()))
		return true;
	fermata_enter();
	now = generation == agent.generation;
	if (now)
		inodes_show(dev, ino);
	fermata_leave();
	return now;
}

/* A directory of proc has no size, and may be read by all and written by nobody; of tasks, it has two links of its own and one a thread. */
static bool may_be_tasks(uint32_t mode, uint64_t size, uint64_t links)
{
	return unlikely(mode == (S_IFDIR | 0555) && !size && links > 3);
}

/* The links of ours that are the program's threads'; @links if it is another directory. */
static uint64_t tasks_links(uint64_t dev, uint64_t ino, uint64_t links)
{
	unsigned int foreign;
	struct stat own;

	do {
		foreign = thread_foreign_count();
		if (!foreign || RAW4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &own, 0) || own.st_dev != dev || own.st_ino != ino)
			return links;
	} while (foreign != thread_foreign_count());
	return own.st_nlink - foreign;
}

/* False: as for show. */
static bool show_tasks(uint32_t generation, uint64_t dev, uint64_t ino, uint64_t *links)
{
	bool now;

	fermata_enter();
	now = generation == agent.generation;
	if (now)
		*links = tasks_links(dev, ino, *links);
	fermata_leave();
	return now;
}

static bool shown(int r, uint32_t generation, struct stat *st)
{
	uint64_t dev, ino;
	bool now;

	if (!r && may_be_tasks(st->st_mode, (uint64_t)st->st_size, st->st_nlink)) {
		uint64_t links = st->st_nlink;

		now = show_tasks(generation, st->st_dev, st->st_ino, &links);
		st->st_nlink = links;
		return now;
	}
	if (r || !S_ISREG(st->st_mode))
		return true;
	dev = st->st_dev;
	ino = st->st_ino;
	now = show(generation, &dev, &ino);
	st->st_dev = dev;
	st->st_ino = ino;
	return now;
}

/* What the kernel does not have a device's library may stand in for. */
static bool stands_in(const char *path, struct stat *st)
{
	return errno == ENOENT && device_path_stat(path, st) == 0;
}

#define STAT_WRAPPER(name, params, args, behind)    \
	EXPORT int name params                            \
	{                                                 \
		uint32_t life;                            \
		int r;                                    \
                                                          \
		WRAP_READY(name);                         \
		do {                                      \
			life = agent.generation;          \
			r = real.name args;               \
		} while (!shown(r, life, (struct stat *)st)); \
		behind;                                   \
		return r;                                 \
	}

#define DEVICE_FILE                                             \
	if (!r && unlikely(device_owns_fd(fd)) && !fermata_in_device()) \
	device_file_stat(fd, (struct stat *)st)
#define DEVICE_PATH                                        \
	if (unlikely(r) && stands_in(path, (struct stat *)st)) \
	r = 0

STAT_WRAPPER(fstat, (int fd, struct stat *st), (fd, st), DEVICE_FILE)
STAT_WRAPPER(fstat64, (int fd, struct stat64 *st), (fd, st), DEVICE_FILE)
STAT_WRAPPER(stat, (const char *path, struct stat *st), (path, st), DEVICE_PATH)
STAT_WRAPPER(stat64, (const char *path, struct stat64 *st), (path, st), DEVICE_PATH)
STAT_WRAPPER(lstat, (const char *path, struct stat *st), (path, st), )
STAT_WRAPPER(lstat64, (const char *path, struct stat64 *st), (path, st), )
STAT_WRAPPER(fstatat, (int dir, const char *path, struct stat *st, int flags), (dir, path, st, flags), )
STAT_WRAPPER(fstatat64, (int dir, const char *path, struct stat64 *st, int flags), (dir, path, st, flags), )

static bool shown_x(uint32_t generation, struct statx *st)
{
	uint64_t dev = makedev(st->stx_dev_major, st->stx_dev_minor), ino = st->stx_ino, links = st->stx_nlink;
	bool now;

	if (may_be_tasks(st->stx_mode, st->stx_size, links)) {
		now = show_tasks(generation, dev, ino, &links);
		st->stx_nlink = (uint32_t)links;
		return now;
	}
	if (!S_ISREG(st->stx_mode))
		return true;
	now = show(generation, &dev, &ino);
	st->stx_dev_major = major(dev);
	st->stx_dev_minor = minor(dev);
	st->stx_ino = ino;
	return now;
}

EXPORT int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	uint32_t life;
	int r;

	WRAP_READY(statx);
	do {
		life = agent.generation;
		r = real.statx(dir, path, flags, mask, st);
	} while (!r && !shown_x(life, st));
	return r;
}

/*
 * What programs call that were linked with a libc of before 2.33; @version says which struct, of which x86-64 has one. Each goes on to the next of its own name: libraries that stand in for
 * both kinds call one from the other (libfakeroot).
 */
#define OLD_STAT(name, params, args, behind) \
	int name params;                     \
	STAT_WRAPPER(name, params, args, behind)

OLD_STAT(__fxstat, (int version, int fd, struct stat *st), (version, fd, st), DEVICE_FILE)
OLD_STAT(__fxstat64, (int version, int fd, struct stat64 *st), (version, fd, st), DEVICE_FILE)
OLD_STAT(__xstat, (int version, const char *path, struct stat *st), (version, path, st), DEVICE_PATH)
OLD_STAT(__xstat64, (int version, const char *path, struct stat64 *st), (version, path, st), DEVICE_PATH)
OLD_STAT(__lxstat, (int version, const char *path, struct stat *st), (version, path, st), )
OLD_STAT(__lxstat64, (int version, const char *path, struct stat64 *st), (version, path, st), )
OLD_STAT(__fxstatat, (int version, int dir, const char *path, struct stat *st, int flags), (version, dir, path, st, flags), )
OLD_STAT(__fxstatat64, (int version, int dir, const char *path, struct stat64 *st, int flags), (version, dir, path, st, flags), )

/* Nobody is kept from a device; there is nothing to be executed. */
EXPORT int access(const char *path, int mode)
{
	struct stat st;
	int r;

	WRAP_READY(access);
	r = real.access(path, mode);
	if (likely(!r) || !stands_in(path, &st))
		return r;
	if (!(mode & (S_ISDIR(st.st_mode) ? W_OK : X_OK)))
		return 0;
	errno = EACCES;
	return -1;
}
