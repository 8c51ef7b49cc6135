/* SPDX-License-Identifier: BSD-2-Clause */
/* What the object of a mapping is: memory alone or a disk's, and of huge pages or not. No state. */
#include <linux/magic.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "agent/agent.h"
#include "agent/maps_object.h"
#include "base/other_name.h"

struct object_id {
	uint64_t dev, ino;
};

static uint64_t device_of(const struct stat *st)
{
	return (uint64_t)major(st->st_dev) << 20 | minor(st->st_dev);
}

bool object_in_memory(const char *path, uint32_t *ret_page_shift)
{
	struct statfs s;

	if (statfs(path, &s) || (s.f_type != TMPFS_MAGIC && s.f_type != RAMFS_MAGIC && s.f_type != HUGETLBFS_MAGIC))
		return false;
	*ret_page_shift = s.f_type == HUGETLBFS_MAGIC ? (uint32_t)__builtin_ctzl((unsigned long)s.f_bsize) : 0;
	return true;
}

/* The kernel has a file system of its own for each size of huge pages, and memfds are in the same ones. */
uint32_t object_page_shift(uint64_t dev)
{
	static const uint32_t shifts[] = { 21, 30 }; /* those of x86-64 */

	for (size_t i = 0; i < ARRAY_SIZE(shifts); i++) {
		int fd = (int)RAW2(SYS_memfd_create, "", MFD_CLOEXEC | MFD_HUGETLB | shifts[i] << MFD_HUGE_SHIFT);
		struct stat st = { 0 };

		if (fd < 0)
			continue;
		RAW2(SYS_fstat, fd, &st);
		raw_close(fd);
		if (device_of(&st) == dev)
			return shifts[i];
	}
	return 0;
}

bool object_is_memory(const char *path, uint64_t dev, uint32_t *ret_page_shift)
{
	struct stat st;
	char dir[4096];
	size_t n = (size_t)(strrchr(path, '/') - path);

	if (!strcmp(path, "/dev/zero (deleted)"))
		return true;
	if (!strncmp(path, "/memfd:", 7) || object_is_anonymous_huge(path)) {
		*ret_page_shift = object_page_shift(dev);
		return true;
	}
	if (n >= sizeof(dir))
		return false;
	memcpy(dir, path, n);
	strcpy(dir + n, n ? "" : "/");
	return RAW4(SYS_newfstatat, AT_FDCWD, dir, &st, 0) == 0 && device_of(&st) == dev && object_in_memory(dir, ret_page_shift); /* not what was mounted there later */
}

bool object_is_anonymous_huge(const char *path)
{
	return !strncmp(path, "/anon_hugepage", 14);
}

static bool is_object(const struct stat *st, const void *arg)
{
	const struct object_id *id = arg;

	return st->st_ino == id->ino && device_of(st) == id->dev;
}

bool object_other_name(const char *path, uint64_t dev, uint64_t ino, char *buf, size_t size)
{
	const struct object_id id = { dev, ino };
	size_t n = (size_t)(strrchr(path, '/') + 1 - path);
	struct stat st;

	if (n >= size)
		return false;
	memcpy(buf, path, n);
	buf[n] = 0;
	return !RAW4(SYS_newfstatat, AT_FDCWD, buf, &st, 0) && device_of(&st) == dev && other_name(path, is_object, &id, buf, size); /* most that looks deleted is on no file system of a directory's */
}
