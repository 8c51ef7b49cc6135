/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --map OLD=NEW, as often as it is given: where a restart finds what lay below OLD (base/path_map.h). Owns struct options_map.
 *
 * OLD is a text as the checkpoint has it, and need not exist here. NEW is made absolute when it is given, and taken through symbolic links when it is used: the kernel's paths lead
 * through none, and what is compared with them must not, either. In between it may have gone to another machine.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

#define REFUSED_SHOWN 200 /* of its bytes: what is behind is to be read, too */

static int refuse(const char *given, const char *why)
{
	log_error("--map %.*s: %s", REFUSED_SHOWN, given, why);
	return -EINVAL;
}

/* Slashes in a row become one, "." goes, and so does a slash at the end. */
static void tidy(char *path)
{
	char *to = path;

	for (const char *at = path; *at;) {
		size_t n;

		at += strspn(at, "/");
		n = strcspn(at, "/");
		if (n && !(n == 1 && *at == '.')) {
			*to++ = '/';
			memmove(to, at, n);
			to += n;
		}
		at += n;
	}
	*to = 0;
}

static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

/* An OLD may have a = in it, where NEW begins with a slash. */
static const char *find_equals(const char *given)
{
	const char *at = strstr(given, "=/");

	return at ? at : strchr(given, '=');
}

static bool is_known(const struct options_map *m, const char *old)
{
	for (unsigned int i = 0; i < m->count; i++)
		if (!strcmp(m->old[i], old))
			return true;
	return false;
}

int options_map_add(struct options_map *m, const char *given)
{
	const char *equals = find_equals(given);
	char old[PATH_MAX], new[PATH_MAX];

	if (!equals)
		return refuse(given, "OLD=NEW is expected");
	if (given[0] != '/')
		return refuse(given, "OLD is expected as the checkpoint has it, absolute");
	if (!equals[1])
		return refuse(given, "it does not say what OLD is now");
	if (snprintf(old, sizeof(old), "%.*s", (int)(equals - given), given) >= (int)sizeof(old) || paths_absolute(equals + 1, new, sizeof(new)))
		return refuse(given, "the path is too long");
	tidy(old);
	tidy(new);
	if (goes_up(old))
		return refuse(given, "OLD is expected without ..");
	if (is_known(m, old))
		return refuse(given, "another --map says already where that is");
	if (m->count == OPTIONS_MAP_MAX)
		return refuse(given, "there may be 64 at most");
	m->old[m->count] = strdup(old);
	m->new[m->count] = strdup(new);
	return m->old[m->count] && m->new[m->count++] ? 0 : -ENOMEM;
}

/* As far as it exists. */
static void resolve(const char *path, char ret[PATH_MAX])
{
	char part[PATH_MAX], real[PATH_MAX];
	size_t n = strlen(path), length;

	strcpy(ret, path);
	while (n) {
		memcpy(part, path, n);
		part[n] = 0;
		if (realpath(part, real)) {
			length = strlen(real);
			if (length + strlen(path + n) < PATH_MAX) {
				memcpy(ret, real, length);
				strcpy(ret + length, path + n);
			}
			break;
		}
		while (path[--n] != '/')
			;
	}
	tidy(ret);
}

int options_map_make(const struct options_map *m, struct path_map *ret)
{
	char *texts = NULL, new[PATH_MAX];
	size_t size = 0;
	FILE *f = m->count ? open_memstream(&texts, &size) : NULL;

	*ret = (struct path_map){ 0 };
	if (m->count && !f)
		return -ENOMEM;
	for (unsigned int i = 0; i < m->count; i++) {
		resolve(m->new[i], new);
		fprintf(f, "%s%c%s%c", m->old[i], 0, new, 0);
	}
	if (f && fclose(f))
		return -ENOMEM;
	*ret = (struct path_map){ texts, size };
	return 0;
}
