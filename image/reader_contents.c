/* SPDX-License-Identifier: BSD-2-Clause */
/* What an image that is being read says of the contents of files. Owns nothing. Entries of a newer writer may be longer than ours. */
#include <string.h>

#include "image/view.h"

#define SIZE_MAX_SANE (1ull << 62)

static bool text_is_sane(const struct image *i, uint32_t at)
{
	return at < i->content_texts_length && memchr(i->content_texts + at, 0, i->content_texts_length - at);
}

static bool is_sane(const struct image *i, const struct image_content *c)
{
	const char *name;

	if (c->kind < IMAGE_CONTENT_STATED || c->kind > IMAGE_CONTENT_DELETED || c->size > SIZE_MAX_SANE || c->bytes > c->size ||
	    c->mode & ~07777u || c->mtime_nsec > 999999999 || !text_is_sane(i, c->path) || !text_is_sane(i, c->name))
		return false;
	name = i->content_texts + c->name;
	if (i->content_texts[c->path] != '/' || strchr(name, '/'))
		return false;
	return image_content_is_saved(c) ? name[0] && name[0] != '.' : !name[0];
}

bool image_read_contents(struct image *i, const struct image_note_view *n)
{
	const struct image_contents *head = n->data;
	uint64_t entries;

	if (n->length < sizeof(*head) || head->entry_size < sizeof(struct image_content) || head->entry_size % 8 || !head->count)
		return false;
	entries = (uint64_t)head->count * head->entry_size;
	if (entries > n->length - sizeof(*head) || head->texts_length > n->length - sizeof(*head) - entries || !head->texts_length)
		return false;
	i->contents = (uint8_t *)(uintptr_t)(head + 1);
	i->content_size = head->entry_size;
	i->content_count = head->count;
	i->content_texts = (const char *)i->contents + entries;
	i->content_texts_length = head->texts_length;
	if (i->content_texts[0])
		return false;
	for (size_t k = 0; k < i->content_count; k++)
		if (!is_sane(i, image_get_content(i, k)))
			return false;
	return true;
}

size_t image_count_contents(const struct image *i)
{
	return i->content_count;
}

const struct image_content *image_get_content(const struct image *i, size_t index)
{
	return (const struct image_content *)(const void *)(i->contents + index * i->content_size);
}

const char *image_content_path(const struct image *i, const struct image_content *c)
{
	return i->content_texts + c->path;
}

const char *image_content_name(const struct image *i, const struct image_content *c)
{
	return i->content_texts + c->name;
}
