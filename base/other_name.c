/* SPDX-License-Identifier: BSD-2-Clause */
/* A directory is searched for a file whose name is not known. No state, no libc beyond mem* and str*. */
#include "base/other_name.h"

#include <fcntl.h>
#include <string.h>

#include "base/sys.h"

struct search {
	bool (*is)(const struct stat *st, const void *arg);
	const void *arg;
	char *buf; /* the directory as in the path, and behind it the name that is looked at */
	size_t length, size;
};

static int look_at(const char *name, void *arg)
{
	struct search *s = arg;
	struct stat st;

	if (strlen(name) >= s->size - s->length)
		return 0;
	strcpy(s->buf + s->length, name);
	return RAW4(SYS_newfstatat, AT_FDCWD, s->buf, &st, AT_SYMLINK_NOFOLLOW) == 0 && s->is(&st, s->arg);
}

bool other_name(const char *path, bool (*is)(const struct stat *st, const void *arg), const void *arg, char *buf, size_t size)
{
	const char *slash = strrchr(path, '/');
	struct search s = { .is = is, .arg = arg, .buf = buf, .length = slash ? (size_t)(slash + 1 - path) : 0, .size = size };

	if (s.length >= size)
		return false;
	memmove(buf, path, s.length);
	buf[s.length] = 0;
	return raw_dir_each(s.length ? buf : ".", look_at, &s) == 1;
}
