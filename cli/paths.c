/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the parts of fermata lie: FERMATA_LIBDIR, else ../lib beside the executable. Owns nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static int paths_libdir(char *ret, size_t size)
{
	const char *given = getenv("FERMATA_LIBDIR");
	char exe[JOB_PATH_MAX];
	char *slash;
	ssize_t n;

	if (given && *given)
		return snprintf(ret, size, "%s", given) < (int)size ? 0 : -ENAMETOOLONG;
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n < 0)
		return -errno;
	exe[n] = 0;
	slash = strrchr(exe, '/');
	if (slash)
		*slash = 0;
	slash = strrchr(exe, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	return snprintf(ret, size, "%s/lib", exe) < (int)size ? 0 : -ENAMETOOLONG;
}

int paths_lib(const char *file, char *ret, size_t size)
{
	char dir[JOB_PATH_MAX];
	int r = paths_libdir(dir, sizeof(dir));

	if (r == 0 && snprintf(ret, size, "%s%s%s", dir, *file ? "/" : "", file) >= (int)size)
		r = -ENAMETOOLONG;
	if (r == 0 && access(ret, R_OK) < 0)
		r = -errno;
	if (r < 0)
		log_error("%s: not found in %s: build or install fermata completely, or set FERMATA_LIBDIR", file, dir);
	return r;
}

int paths_absolute(const char *path, char *ret, size_t size)
{
	char cwd[JOB_PATH_MAX];
	int n;

	if (path[0] == '/') {
		n = snprintf(ret, size, "%s", path);
	} else {
		if (!getcwd(cwd, sizeof(cwd)))
			return -errno;
		while (path[0] == '.' && path[1] == '/')
			path += 2;
		n = snprintf(ret, size, "%s/%s", strcmp(cwd, "/") ? cwd : "", path);
	}
	if (n < 0 || (size_t)n >= size)
		return -ENAMETOOLONG;
	while (n > 1 && ret[n - 1] == '/')
		ret[--n] = 0;
	return 0;
}

void size_format(double bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t u = 0;

	while (bytes >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		u++;
	}
	snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
}

void size_format_contents(double bytes, double contents, unsigned int files, char *buf, size_t size)
{
	char more[32];
	size_t n;

	size_format(bytes, buf, size);
	if (!files)
		return;
	n = strlen(buf);
	size_format(contents, more, sizeof(more));
	snprintf(buf + n, size - n, " + %s of %u file%s", more, files, files == 1 ? "" : "s");
}
