/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes the list of a directory (image/tree.h) from what tree_walk() has found: kinds, times, texts; which names lead to one file. Whether a file's content is saved
 * is for the caller to add. Owns struct tree_list.
 */
#include "cli/tree_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

static int inode_compare(const void *a, const void *b)
{
	const struct tree_inode *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

void tree_inodes_sort(struct tree_inode *all, size_t count)
{
	if (count)
		qsort(all, count, sizeof(*all), inode_compare);
}

const struct tree_inode *tree_inodes_find(const struct tree_inode *all, size_t count, uint64_t dev, uint64_t ino)
{
	const struct tree_inode wanted = { dev, ino, 0 };
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (inode_compare(&all[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && all[low].dev == dev && all[low].ino == ino ? &all[low] : NULL;
}

static int text_add(struct tree_list *l, const char *text, uint64_t *ret)
{
	size_t n = strlen(text) + 1;

	if (l->length + n > l->room) {
		char *more = realloc(l->texts, (l->room + n) * 2);

		if (!more)
			return -ENOMEM;
		l->texts = more;
		l->room = (l->room + n) * 2;
	}
	memcpy(l->texts + l->length, text, n);
	*ret = l->length;
	l->length += n;
	return 0;
}

static uint32_t kind_of(const struct stat *st)
{
	return S_ISDIR(st->st_mode) ? IMAGE_TREE_DIRECTORY : S_ISREG(st->st_mode) ? IMAGE_TREE_FILE : S_ISLNK(st->st_mode) ? IMAGE_TREE_SYMLINK :
	       S_ISFIFO(st->st_mode) ? IMAGE_TREE_FIFO : IMAGE_TREE_LEFT_OUT;
}

static int add_target(struct tree_list *l, const char *root, const char *path, uint64_t *ret)
{
	char at[2 * PATH_MAX], target[PATH_MAX];
	ssize_t n;

	snprintf(at, sizeof(at), "%s/%s", root, path);
	n = readlink(at, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = 0;
	return text_add(l, target, ret);
}

static int add(struct tree_list *l, const char *root, const struct tree_item *item)
{
	const struct stat *st = &item->st;
	struct image_tree_entry *e = &l->entries[l->count++];
	int r;

	*e = (struct image_tree_entry){ .kind = kind_of(st), .flags = item->mount ? IMAGE_TREE_MOUNT : 0, .mode = st->st_mode & 07777,
					.nlink = (uint32_t)st->st_nlink, .uid = st->st_uid, .gid = st->st_gid, .mtime_sec = st->st_mtim.tv_sec,
					.mtime_nsec = (uint32_t)st->st_mtim.tv_nsec, .ctime_sec = st->st_ctim.tv_sec,
					.ctime_nsec = (uint32_t)st->st_ctim.tv_nsec, .dev = st->st_dev, .ino = st->st_ino, .parent = item->parent };
	e->size = e->kind == IMAGE_TREE_FILE ? (uint64_t)st->st_size : 0;
	r = text_add(l, item->path, &e->path);
	if (!r && e->kind == IMAGE_TREE_SYMLINK)
		r = add_target(l, root, item->path, &e->other);
	return r;
}

/* Of several names of one file the first one is the FILE. */
static int join_links(struct tree_list *l)
{
	struct tree_inode *several = malloc((l->count + 1) * sizeof(*several));
	size_t n = 0;

	if (!several)
		return -ENOMEM;
	for (size_t i = 0; i < l->count; i++)
		if (l->entries[i].kind == IMAGE_TREE_FILE && l->entries[i].nlink > 1)
			several[n++] = (struct tree_inode){ l->entries[i].dev, l->entries[i].ino, i };
	tree_inodes_sort(several, n);
	for (size_t i = 1, first = 0; i < n; i++) {
		struct image_tree_entry *e = &l->entries[several[i].index];

		if (several[i].dev != several[first].dev || several[i].ino != several[first].ino) {
			first = i;
			continue;
		}
		e->kind = IMAGE_TREE_LINK;
		e->size = 0;
		e->other = several[first].index;
	}
	free(several);
	return 0;
}

int tree_list_make(const struct tree_items *items, const char *root, struct tree_list *ret, size_t *ret_failed)
{
	uint64_t nothing;
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->seen_sec = time(NULL);
	*ret_failed = 0;
	ret->entries = calloc(items->count + 1, sizeof(*ret->entries));
	r = ret->entries ? text_add(ret, "", &nothing) : -ENOMEM;
	if (!r)
		r = text_add(ret, root, &ret->root);
	for (size_t i = 0; i < items->count && !r; i++) {
		*ret_failed = i;
		r = add(ret, root, &items->all[i]);
	}
	return r ? r : join_links(ret);
}

int tree_list_write(const struct tree_list *l, int fd, uint8_t ret_digest[16])
{
	size_t size = l->count * sizeof(*l->entries);
	struct image_tree_head head = { .magic = IMAGE_TREE_MAGIC, .version = IMAGE_TREE_VERSION, .entry_size = sizeof(*l->entries), .count = l->count,
					.texts_length = l->length, .root = l->root, .seen_sec = l->seen_sec };
	char *rest = malloc(size + l->length);
	int r;

	if (!rest)
		return -ENOMEM;
	memcpy(rest, l->entries, size);
	memcpy(rest + size, l->texts, l->length);
	image_tree_digest(&head, rest, size + l->length, head.digest);
	memcpy(ret_digest, head.digest, sizeof(head.digest));
	r = raw_pwrite_all(fd, &head, sizeof(head), 0);
	if (!r)
		r = raw_pwrite_all(fd, rest, size + l->length, sizeof(head));
	free(rest);
	return r;
}

void tree_list_free(struct tree_list *l)
{
	free(l->entries);
	free(l->texts);
	memset(l, 0, sizeof(*l));
}
