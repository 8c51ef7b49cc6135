/* SPDX-License-Identifier: BSD-2-Clause */
/* --with DIR, as often as it is given, or FERMATA_WITH=DIR:DIR: the directories that a checkpoint holds, too. Owns struct options_with. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cli/cli.h"

static int refuse(const char *given, const char *why)
{
	log_error("--with %s: %s", given, why);
	return -EINVAL;
}

static bool is_within(const char *path, const char *above)
{
	size_t n = strlen(above);

	return !strncmp(path, above, n) && (!path[n] || path[n] == '/');
}

static int check(const struct options_with *w, const char *given, const char *path)
{
	json_t *utf8 = json_string(path);

	json_decref(utf8);
	if (!utf8)
		return refuse(given, "the path is not valid UTF-8");
	if (!strcmp(path, "/"))
		return refuse(given, "not the root of all files");
	for (unsigned int i = 0; i < w->count; i++)
		if (is_within(path, w->paths[i]) || is_within(w->paths[i], path))
			return refuse(given, "of two directories one is in the other");
	return 0;
}

int options_with_take(struct options_with *w, const char *path)
{
	if (w->count == OPTIONS_WITH_MAX)
		return refuse(path, "there may be 16 at most");
	w->paths[w->count] = strdup(path);
	return w->paths[w->count++] ? 0 : -ENOMEM;
}

int options_with_add(struct options_with *w, const char *given)
{
	char path[PATH_MAX];
	struct stat st;
	int r;

	if (!realpath(given, path))
		return refuse(given, strerror(errno));
	if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return refuse(given, "it is no directory");
	r = check(w, given, path);
	if (r < 0)
		return r;
	return options_with_take(w, path);
}

int options_with_move(struct options_with *w, const char *path)
{
	int r = check(w, path, path);

	return r < 0 ? r : options_with_take(w, path);
}

int options_with_environment(struct options_with *w)
{
	const char *value = w->count ? NULL : options_text(NULL, "FERMATA_WITH");
	char *copy = value ? strdup(value) : NULL, *rest = copy, *one;
	int r = 0;

	while (rest && !r && (one = strsep(&rest, ":")))
		r = *one ? options_with_add(w, one) : 0;
	free(copy);
	return r;
}

int options_with_apart(const struct options_with *w, const char *dir)
{
	for (unsigned int i = 0; i < w->count; i++)
		if (is_within(w->paths[i], dir))
			return refuse(w->paths[i], "the checkpoints go there");
	return 0;
}
