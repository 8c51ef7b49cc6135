/* SPDX-License-Identifier: BSD-2-Clause */
/* Applies the rules of base/path_map.h. Owns nothing; libc's mem* and str* only. */
#include "base/path_map.h"

#include <stdbool.h>
#include <string.h>

static bool is_within(const char *path, const char *above, size_t n)
{
	return !strncmp(path, above, n) && (!path[n] || path[n] == '/');
}

const char *path_map_apply(const struct path_map *m, const char *path, char *buf, size_t size)
{
	const char *to = NULL;
	size_t from = 0, length, rest;

	if (path[0] != '/')
		return path;
	for (const char *old = m->texts, *end = old + m->length; old < end;) {
		size_t n = strlen(old);

		if (is_within(path, old, n) && (!to || n > from)) {
			from = n;
			to = old + n + 1;
		}
		old += n + 1;
		old += strlen(old) + 1;
	}
	if (!to)
		return path;
	path += from;
	if (!*path || !path[1]) /* it is OLD itself */
		path = *to ? "" : "/";
	length = strlen(to);
	rest = strlen(path);
	if (length + rest >= size)
		return NULL;
	memcpy(buf, to, length);
	memcpy(buf + length, path, rest + 1);
	return buf;
}
