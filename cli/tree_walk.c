/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists what is in a directory. Owns nothing beyond the call; one path, which grows and shrinks as the walk goes down and up. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tree.h"

struct walk {
	struct tree_items *items;
	const struct stat *without;
	bool (*go_on)(void *arg);
	void *arg;
	char path[PATH_MAX]; /* absolute */
	size_t root;	     /* its length, with the slash */
};

static int add(struct walk *w, const struct stat *st, size_t parent, bool mount)
{
	struct tree_items *l = w->items;
	const char *relative = strlen(w->path) < w->root ? "" : w->path + w->root;

	if (l->count == l->room) {
		struct tree_item *more = realloc(l->all, (l->room * 2 + 64) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->all = more;
		l->room = l->room * 2 + 64;
	}
	l->all[l->count] = (struct tree_item){ .path = strdup(relative), .st = *st, .parent = parent, .mount = mount };
	if (!l->all[l->count].path)
		return -ENOMEM;
	l->count++;
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_free(char **names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

static bool is_ours(const struct walk *w, const char *name)
{
	return strlen(w->path) < w->root && !strncmp(name, TREE_OURS, sizeof(TREE_OURS) - 1);
}

/* The names in the directory @w->path, sorted: their number, or -errno. */
static ssize_t names_read(const struct walk *w, char ***ret)
{
	DIR *d = opendir(w->path);
	size_t count = 0, room = 0;
	struct dirent *e;
	int err = 0;

	*ret = NULL;
	if (!d)
		return -errno;
	while (!err && (errno = 0, e = readdir(d))) {
		char **more = *ret;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || is_ours(w, e->d_name))
			continue;
		if (count == room && (more = realloc(*ret, (room = room * 2 + 32) * sizeof(*more))))
			*ret = more;
		if (!more || !(more[count] = strdup(e->d_name)))
			err = ENOMEM;
		else
			count++;
	}
	err = err ? err : errno;
	closedir(d);
	if (err) {
		names_free(*ret, count);
		return -err;
	}
	if (count)
		qsort(*ret, count, sizeof(**ret), compare);
	return (ssize_t)count;
}

static int enter(struct walk *w, size_t self);

/* One that has gone since its name was read is somebody else's, for the job stands. */
static int look(struct walk *w, size_t parent)
{
	const struct stat *root = &w->items->all[0].st;
	struct stat st;
	bool mount;
	int r;

	if (w->go_on && !w->go_on(w->arg))
		return -ECANCELED;
	if (lstat(w->path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (w->without && S_ISDIR(st.st_mode) && st.st_dev == w->without->st_dev && st.st_ino == w->without->st_ino)
		return 0;
	mount = S_ISDIR(st.st_mode) && st.st_dev != root->st_dev;
	r = add(w, &st, parent, mount);
	return r || mount || !S_ISDIR(st.st_mode) ? r : enter(w, w->items->count - 1);
}

static int enter(struct walk *w, size_t self)
{
	size_t length = strlen(w->path);
	char **names;
	ssize_t count = names_read(w, &names);
	int r = count < 0 ? (int)count : 0;

	for (ssize_t i = 0; i < count && !r; i++) {
		if (length + strlen(names[i]) + 2 > sizeof(w->path)) {
			r = -ENAMETOOLONG;
			break;
		}
		sprintf(w->path + length, "/%s", names[i]);
		r = look(w, self);
		if (!r)
			w->path[length] = 0;
	}
	if (count >= 0)
		names_free(names, (size_t)count);
	return r;
}

int tree_walk(const char *root, const struct stat *without, bool (*go_on)(void *arg), void *arg, struct tree_items *ret)
{
	struct walk *w = malloc(sizeof(*w));
	struct stat st;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!w)
		return -ENOMEM;
	w->items = ret;
	w->without = without;
	w->go_on = go_on;
	w->arg = arg;
	snprintf(w->path, sizeof(w->path), "%s", strcmp(root, "/") ? root : "");
	w->root = strlen(w->path) + 1;
	r = stat(root, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	if (!r)
		r = add(w, &st, 0, false);
	if (!r)
		r = enter(w, 0);
	if (r)
		snprintf(ret->failed, sizeof(ret->failed), "%s", w->path);
	free(w);
	return r;
}

void tree_items_free(struct tree_items *items)
{
	for (size_t i = 0; i < items->count; i++)
		free(items->all[i].path);
	free(items->all);
	memset(items, 0, sizeof(*items));
}
