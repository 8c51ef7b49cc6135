/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out the directory that goes in front of LD_LIBRARY_PATH, so that whoever opens libibverbs by name gets the shim
 * (plugins/verbs/shim), and the shim finds the system's library under the name that it depends on:
 *
 *   RUNDIR/.shim/libibverbs.so.1       -> LIBDIR/fermata/shim/libibverbs.so.1
 *   RUNDIR/.shim/libibverbs.so         -> the same
 *   RUNDIR/.shim/libibverbs-real.so.1  -> the system's library, wherever it is
 *
 * One directory for all jobs of a user: links are replaced whole, by rename, so that launches at the same time do no harm.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/launch_shim.h"

#define REAL_NAME "libibverbs-real.so.1"

/* The shim under another path, a build's hard link for instance, is not the system's library. */
static int same_file(const char *a, const char *b)
{
	struct stat sa, sb;

	return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* What an earlier launch found; loading the library to ask costs a millisecond. */
static int real_known(const char *dir, const char *shim, char ret[PATH_MAX])
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/" REAL_NAME, dir) < (int)sizeof(path) && realpath(path, ret) &&
	       !same_file(ret, shim);
}

/* Where the system's library is, looked up as the program would look, but past a shim that stands before it. */
static int real_library(const char *shim, char ret[PATH_MAX])
{
	static const char *const names[] = { REAL_NAME, "libibverbs.so.1" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *handle = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
		struct link_map *map;
		int found = handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, ret) &&
			    !same_file(ret, shim);

		if (handle)
			dlclose(handle);
		if (found)
			return 0;
	}
	return -ENOENT;
}

static int shim_link(const char *dir, const char *name, const char *to)
{
	char path[PATH_MAX], fresh[PATH_MAX], old[PATH_MAX];
	ssize_t n;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
	    snprintf(fresh, sizeof(fresh), "%s/%s.%d", dir, name, getpid()) >= (int)sizeof(fresh))
		return -ENAMETOOLONG;
	n = readlink(path, old, sizeof(old) - 1);
	if (n > 0 && (size_t)n == strlen(to) && !memcmp(old, to, (size_t)n))
		return 0;
	unlink(fresh);
	if (symlink(to, fresh) < 0 || rename(fresh, path) < 0)
		return -errno;
	return 0;
}

int launch_prepare_shim(const char *jobdir, const char *libdir, char *ret_dir, size_t size)
{
	char staged[PATH_MAX], shim[PATH_MAX], real[PATH_MAX];
	const char *end = strrchr(jobdir, '/');
	int r;

	if (!end || snprintf(ret_dir, size, "%.*s/.shim", (int)(end - jobdir), jobdir) >= (int)size ||
	    snprintf(staged, sizeof(staged), "%s/fermata/shim/libibverbs.so.1", libdir) >= (int)sizeof(staged))
		return -ENAMETOOLONG;
	if (!realpath(staged, shim) || (!real_known(ret_dir, shim, real) && real_library(shim, real) < 0))
		return 1;
	if (mkdir(ret_dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	r = shim_link(ret_dir, REAL_NAME, real);
	if (!r)
		r = shim_link(ret_dir, "libibverbs.so.1", shim);
	if (!r)
		r = shim_link(ret_dir, "libibverbs.so", shim);
	if (r)
		log_warn("%s: the shim of libibverbs cannot be laid out (%s): programs that dlopen it will not be "
			 "under checkpoint control", ret_dir, strerror(-r));
	return r;
}
