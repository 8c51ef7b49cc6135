/* SPDX-License-Identifier: BSD-2-Clause */
/* The System V segments of an image that is being read, and whether its mappings can be attachments of them. Owns nothing. */
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "image/view.h"

#define SIZE_MAX_SANE (1ull << 56)
#define HUGE_SHIFT_MIN 13u
#define HUGE_SHIFT_MAX 40u
#define MODE_KNOWN (0777u | SHM_DEST | SHM_LOCKED)

static bool segment_is_sane(const struct image_sysv *s, int64_t after)
{
	if (s->page_shift && (s->page_shift < HUGE_SHIFT_MIN || s->page_shift > HUGE_SHIFT_MAX))
		return false;
	return s->id > after && s->size && s->size <= SIZE_MAX_SANE && !(s->mode & ~MODE_KNOWN) && s->cpid >= 0 &&
	       s->lpid >= 0 && !(s->mode & SHM_DEST && s->key != IPC_PRIVATE);
}

bool image_read_sysv(struct image *i, const struct image_note_view *n)
{
	int64_t after = -1;

	i->sysv = n->data;
	i->sysv_count = n->length / sizeof(*i->sysv);
	if (!i->sysv_count || n->length % sizeof(*i->sysv))
		return false;
	for (size_t k = 0; k < i->sysv_count; k++) {
		if (!segment_is_sane(&i->sysv[k], after))
			return false;
		after = i->sysv[k].id;
	}
	return true;
}

static const struct image_sysv *find(const struct image *i, uint64_t id)
{
	for (size_t k = 0; k < i->sysv_count; k++)
		if ((uint64_t)i->sysv[k].id == id)
			return &i->sysv[k];
	return NULL;
}

static bool attachment_is_sane(const struct image *i, const struct image_mapping *m)
{
	const struct image_sysv *s = find(i, m->ino);
	uint64_t room = s ? image_sysv_room(s) : 0;

	if (!s || m->offset > m->start || m->offset >= room || m->end - m->start > room - m->offset)
		return false;
	if (m->flags & IMAGE_MAPPING_TRANSIENT && (m->offset || m->end - m->start != room))
		return false;
	return !(m->flags & IMAGE_MAPPING_READONLY && m->prot & PROT_WRITE);
}

bool image_sysv_agrees(const struct image *i)
{
	for (size_t k = 0; k < i->mapping_count; k++)
		if (i->mappings[k].kind == IMAGE_MAPPING_SYSV && !attachment_is_sane(i, &i->mappings[k]))
			return false;
	return true;
}

const struct image_sysv *image_get_sysv(const struct image *i, size_t *ret_count)
{
	*ret_count = i->sysv_count;
	return i->sysv;
}
