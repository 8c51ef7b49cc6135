/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the list of a directory that a checkpoint holds. Hosted. Owns struct image_tree. Nothing in it is trusted: an entry's path is its parent's and one name, and its
 * parent is a directory of the list, so no path leaves the root, by a name or through a symbolic link of the list.
 */
#include "image/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "image/content.h"
#include "image/hash.h"
#include "image/view.h"

#define SIZE_MAX_SANE (1ull << 62)

void image_tree_digest(const struct image_tree_head *head, const void *rest, size_t length, uint8_t ret[16])
{
	struct image_tree_head h = *head;
	struct image_piece pieces[2] = { { &h, sizeof(h) }, { rest, length } };

	memset(h.digest, 0, sizeof(h.digest));
	image_hash128(pieces, 2, ret);
}

static const char *text(const struct image_tree *t, uint64_t at)
{
	return at < t->head.texts_length ? t->texts + at : NULL; /* the last byte of the texts is 0 */
}

const char *image_tree_path(const struct image_tree *t, const struct image_tree_entry *e)
{
	return t->texts + e->path;
}

/* One name below its parent. */
static bool path_is_sane(const struct image_tree *t, const struct image_tree_entry *e)
{
	const struct image_tree_entry *parent = &t->entries[e->parent];
	const char *path = text(t, e->path), *above = text(t, parent->path), *name = path;
	size_t length = above ? strlen(above) : 0;

	if (!path || !above || parent->kind != IMAGE_TREE_DIRECTORY || strlen(path) >= PATH_MAX)
		return false;
	if (length && (strncmp(path, above, length) || path[length] != '/'))
		return false;
	name += length ? length + 1 : 0;
	return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static bool is_sane(const struct image_tree *t, uint64_t n)
{
	const struct image_tree_entry *e = &t->entries[n];

	if (!n)
		return e->kind == IMAGE_TREE_DIRECTORY && !e->parent && text(t, e->path) && !*text(t, e->path);
	if (e->kind < IMAGE_TREE_DIRECTORY || e->kind > IMAGE_TREE_LEFT_OUT || e->mode & ~07777u || e->size > SIZE_MAX_SANE || e->bytes > e->size ||
	    e->mtime_nsec > 999999999 || e->parent >= n || !path_is_sane(t, e))
		return false;
	if (e->kind == IMAGE_TREE_LINK)
		return e->other < n && t->entries[e->other].kind == IMAGE_TREE_FILE;
	return e->kind != IMAGE_TREE_SYMLINK || (text(t, e->other) && *text(t, e->other));
}

static int check(struct image_tree *t, size_t length)
{
	const struct image_tree_head *h = &t->head;
	uint8_t digest[16];
	uint64_t room;

	if (length < sizeof(*h))
		return -EBADMSG;
	memcpy(&t->head, t->data, sizeof(*h));
	if (memcmp(h->magic, IMAGE_TREE_MAGIC, sizeof(h->magic)))
		return -EBADMSG;
	if (h->version > IMAGE_TREE_VERSION)
		return -EPROTONOSUPPORT;
	room = length - sizeof(*h);
	if (h->version != IMAGE_TREE_VERSION || h->entry_size != sizeof(*t->entries) || !h->count || h->count > room / sizeof(*t->entries) ||
	    h->texts_length != room - h->count * sizeof(*t->entries) || !h->texts_length || t->data[length - 1])
		return -EBADMSG;
	image_tree_digest(h, t->data + sizeof(*h), room, digest);
	if (memcmp(digest, h->digest, sizeof(digest)))
		return -EBADMSG;
	t->entries = (struct image_tree_entry *)(void *)(t->data + sizeof(*h));
	t->texts = (const char *)(t->entries + h->count);
	if (!text(t, h->root) || *text(t, h->root) != '/' || strlen(text(t, h->root)) >= PATH_MAX)
		return -EBADMSG;
	for (uint64_t n = 0; n < h->count; n++)
		if (!is_sane(t, n))
			return -EBADMSG;
	return 0;
}

int image_tree_parse(uint8_t *data, size_t length, struct image_tree *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->data = data;
	r = check(ret, length);
	if (r) {
		free(data);
		ret->data = NULL;
	}
	return r;
}

static int load(const char *path, uint8_t **ret, size_t *ret_length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r;
	struct stat st;

	if (fd < 0)
		return -errno;
	r = fstat(fd, &st) < 0 ? -errno : !S_ISREG(st.st_mode) ? -EBADMSG : 0;
	*ret = r ? NULL : malloc((size_t)st.st_size + 1);
	if (!r && !*ret)
		r = -ENOMEM;
	if (!r)
		r = raw_pread_all(fd, *ret, (size_t)st.st_size, 0);
	if (r)
		free(*ret);
	else
		*ret_length = (size_t)st.st_size;
	close(fd);
	return r;
}

int image_tree_open(const char *checkpoint, unsigned int k, struct image_tree **ret, struct image_error *ret_error)
{
	struct image_tree *t = calloc(1, sizeof(*t));
	char path[PATH_MAX + 32];
	const struct image named = { .name = path };
	uint8_t *data = NULL;
	size_t length = 0;
	int r;

	*ret_error = (struct image_error){ .block = UINT64_MAX };
	snprintf(path, sizeof(path), "%s/with-%u.list", checkpoint, k);
	r = t ? load(path, &data, &length) : -ENOMEM;
	if (!r)
		r = image_tree_parse(data, length, t);
	if (!r) {
		snprintf(t->name, sizeof(t->name), "with-%u", k);
		*ret = t;
		return 0;
	}
	free(t);
	image_say(&named, ret_error, r == -EPROTONOSUPPORT ? IMAGE_NEWER : r == -EBADMSG ? IMAGE_DAMAGED : IMAGE_MISSING, "%s",
		  r == -EPROTONOSUPPORT ? "is of a newer version" : r == -EBADMSG ? "is damaged" : strerror(-r));
	return r;
}

struct image_tree *image_tree_free(struct image_tree *t)
{
	if (t)
		free(t->data);
	free(t);
	return NULL;
}

static int sum(int fd, const struct image_tree_entry *e, uint64_t *ret)
{
	struct image_content_work w = { .buffer = malloc(IMAGE_CONTENT_BLOCK) };
	uint64_t bytes;
	bool reading;
	int r = w.buffer ? image_content_copy(&w, fd, -1, e->size, ret, &bytes, &reading) : -ENOMEM;

	free(w.buffer);
	return r;
}

int image_tree_verify(const struct image_tree *t, const char *checkpoint, uint64_t n, struct image_error *ret_error)
{
	const struct image_tree_entry *e = &t->entries[n];
	char path[PATH_MAX + 64];
	const struct image named = { .name = path };
	uint64_t is = 0;
	struct stat st;
	int fd, r = 0;

	*ret_error = (struct image_error){ .block = UINT64_MAX };
	snprintf(path, sizeof(path), "%s/%s/%llu", checkpoint, t->name, (unsigned long long)n);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return image_say(&named, ret_error, IMAGE_DAMAGED, "%s", strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size)
		r = image_say(&named, ret_error, IMAGE_DAMAGED, "is damaged: it does not have the %llu bytes that the list says", (unsigned long long)e->size);
	else if ((r = sum(fd, e, &is)))
		r = image_say(&named, ret_error, IMAGE_DAMAGED, "is damaged: it cannot be read: %s", strerror(-r));
	else if (e->flags & IMAGE_TREE_HAS_SUM && is != e->sum)
		r = image_say(&named, ret_error, IMAGE_DAMAGED, "is damaged: it does not match its checksum");
	close(fd);
	return r;
}
