/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths of an image that is being read become those of this life (fermata restart --map): in one place, so that whoever asks the image for a path gets the one that is
 * true here. What is mapped is appended to a copy of the texts, and the entry led there. Owns image.moved_paths and .moved_texts.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/path_map.h"
#include "image/view.h"

struct texts {
	char *at;
	uint64_t length, room;
};

static int append(struct texts *t, const char *text, uint32_t *ret)
{
	size_t n = strlen(text) + 1;

	if (t->room - t->length < n) {
		uint64_t room = (t->room + n) * 2;
		char *more = room > UINT32_MAX ? NULL : realloc(t->at, room);

		if (!more)
			return -ENOMEM;
		t->at = more;
		t->room = room;
	}
	memcpy(t->at + t->length, text, n);
	*ret = (uint32_t)t->length;
	t->length += n;
	return 0;
}

static int copy(struct texts *t, const char *texts, uint64_t length)
{
	*t = (struct texts){ .at = malloc(length + 1), .length = length, .room = length };
	if (!t->at)
		return -ENOMEM;
	memcpy(t->at, texts, length);
	return 0;
}

/* @path is an offset into @t. */
static int map_one(struct texts *t, const struct path_map *map, uint32_t *path)
{
	char buf[PATH_MAX];
	const char *now = path_map_apply(map, t->at + *path, buf, sizeof(buf));

	if (!now)
		return -ENAMETOOLONG;
	return now == buf ? append(t, now, path) : 0;
}

/* Neighbours are of one file, as a rule. */
static int map_mappings(struct image *i, const struct path_map *map, struct texts *t)
{
	uint32_t before = 0, before_now = 0;
	int r = copy(t, i->paths, i->paths_length);

	for (size_t k = 0; k < i->mapping_count && !r; k++) {
		struct image_mapping *m = &i->mappings[k];

		if (!m->path)
			continue;
		if (m->path != before) {
			before = before_now = m->path;
			r = map_one(t, map, &before_now);
		}
		m->path = before_now;
	}
	return r;
}

static int map_contents(struct image *i, const struct path_map *map, struct texts *t)
{
	int r = i->content_count ? copy(t, i->content_texts, i->content_texts_length) : 0;

	for (size_t k = 0; k < i->content_count && !r; k++)
		r = map_one(t, map, &((struct image_content *)(void *)(i->contents + k * i->content_size))->path);
	return r;
}

static int map_text(const struct path_map *map, char *text, size_t size)
{
	char buf[PATH_MAX];
	const char *now = path_map_apply(map, text, buf, size);

	if (!now)
		return -ENAMETOOLONG;
	if (now == buf)
		memcpy(text, buf, strlen(buf) + 1);
	return 0;
}

int image_map_paths(struct image *i, const struct path_map *map, struct image_error *ret_error)
{
	struct texts paths = { 0 }, texts = { 0 };
	int r = map_text(map, i->process.exe, sizeof(i->process.exe));

	if (!r)
		r = map_text(map, i->process.cwd, sizeof(i->process.cwd));
	if (!r)
		r = map_mappings(i, map, &paths);
	if (!r)
		r = map_contents(i, map, &texts);
	i->moved_paths = paths.at;
	i->moved_texts = texts.at;
	if (r)
		return image_say(i, ret_error, IMAGE_MISSING, r == -ENOMEM ? "no memory for its paths" : "a path of it is too long where it is now");
	i->paths = paths.at;
	i->paths_length = paths.length;
	if (texts.at) {
		i->content_texts = texts.at;
		i->content_texts_length = texts.length;
	}
	return 0;
}
