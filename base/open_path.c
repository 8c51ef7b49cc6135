/* SPDX-License-Identifier: BSD-2-Clause */
/* No state, no libc beyond mem* and str*. */
#include "base/open_path.h"

#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "base/other_name.h"
#include "base/sys.h"

static const char deleted[] = " (deleted)";
#define WORD ((long)sizeof(deleted) - 1)

bool path_leads_to(const char *path, const struct stat *st)
{
	struct stat now;

	return RAW4(SYS_newfstatat, AT_FDCWD, path, &now, AT_SYMLINK_NOFOLLOW) >= 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev;
}

static bool is_file(const struct stat *st, const void *want)
{
	const struct stat *w = want;

	return st->st_ino == w->st_ino && st->st_dev == w->st_dev;
}

static long read_link(int fd, char *path, size_t size)
{
	char proc[40];
	long n;

	fm_format(proc, sizeof(proc), "/proc/thread-self/fd/%d", fd);
	n = RAW4(SYS_readlinkat, AT_FDCWD, proc, path, size - 1);
	path[n > 0 ? n : 0] = 0;
	return n;
}

long open_path(int fd, const struct stat *st, char *path, size_t size)
{
	long n = read_link(fd, path, size);

	if (n <= WORD || !st->st_nlink || strcmp(path + n - WORD, deleted) != 0 || path_leads_to(path, st))
		return n;
	path[n - WORD] = 0;
	if (path_leads_to(path, st) || other_name(path, is_file, st, path, size))
		return (long)strlen(path);
	return read_link(fd, path, size);
}
