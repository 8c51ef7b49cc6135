/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which bytes of an image go where, block by block of its checksums, so that the restorer can check what it reads. Owns nothing beyond
 * what it hands out.
 *
 *   blocks   |      0      |      1      |      2      |
 *   loads    [a][b ][c     ][c  ]  hole  [d]   hole         a load lies in one mapping and in one block
 *
 * Holes of the image are zeros. In anonymous memory they are left untouched; over a file's pages they have to be read as any
 * other, or the file would show through, which shows where they are as it has them. Bytes that no memory takes are loads to PLAN_NOWHERE: they are checked all the same.
 */
#include "cli/restart.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macro.h"
#include "image/hash.h"

#define LOADS_FIRST 256u

/* Cut at the ends of blocks. */
static int add_load(struct restart_loads *l, uint64_t address, uint64_t length, uint64_t offset)
{
	uint64_t size = l->described->block_size, piece;

	for (; length; length -= piece, offset += piece) {
		piece = size - (offset - l->described->data_start) % size;
		if (piece > length)
			piece = length;
		if (l->load_count == l->load_room) {
			size_t room = l->load_room ? l->load_room * 2 : LOADS_FIRST;
			struct plan_load *more = reallocarray(l->loads, room, sizeof(*more));

			if (!more)
				return -ENOMEM;
			l->loads = more;
			l->load_room = room;
		}
		l->loads[l->load_count++] = (struct plan_load){ address, piece, offset };
		if (address != PLAN_NOWHERE)
			address += piece;
	}
	return 0;
}

/* What of these bytes is no hole. A file system without holes shows none. */
static int add_data(struct restart_loads *l, uint64_t address, uint64_t length, uint64_t offset)
{
	off_t begin = (off_t)offset, at = begin, end = at + (off_t)length;

	while (at < end) {
		off_t data = lseek(l->fd, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return 0;
		if (data < 0)
			data = at;
		hole = lseek(l->fd, data, SEEK_HOLE);
		data = (off_t)ALIGN_DOWN((uint64_t)data, 4096);
		if (data < at)
			data = at;
		hole = hole < 0 ? end : (off_t)ALIGN_UP((uint64_t)hole, 4096);
		if (hole > end)
			hole = end;
		if (data < hole && add_load(l, address == PLAN_NOWHERE ? address : address + (uint64_t)(data - begin),
					    (uint64_t)(hole - data), (uint64_t)data) < 0)
			return -ENOMEM;
		at = hole > data ? hole : end;
	}
	return 0;
}

static int add_unloaded(struct restart_loads *l, uint64_t begin, uint64_t end)
{
	return begin < end ? add_data(l, PLAN_NOWHERE, end - begin, begin) : 0;
}

static int add_segment(struct restart_loads *l, const Elf64_Phdr *s, uint32_t kind)
{
	switch (l->vdso && kind == IMAGE_MAPPING_VDSO ? (uint32_t)IMAGE_MAPPING_ANON : kind) {
	case IMAGE_MAPPING_ANON:
	case IMAGE_MAPPING_SHARED_ANON:
	case IMAGE_MAPPING_SYSV:
		return add_data(l, s->p_vaddr, s->p_filesz, s->p_offset);
	case IMAGE_MAPPING_FILE:
		if (s->p_flags & IMAGE_SEGMENT_CLEAN)
			return add_unloaded(l, s->p_offset, s->p_offset + s->p_filesz);
		return add_load(l, s->p_vaddr, s->p_filesz, s->p_offset);
	default: /* the file is the content; the kernel's own pages */
		return add_unloaded(l, s->p_offset, s->p_offset + s->p_filesz);
	}
}

/* Segments and mappings ascend, by address and by offset: one pass over the two. */
static int add_segments(struct restart_loads *l, const struct image *image)
{
	uint64_t at = l->described->data_start;
	size_t count, mappings, m = 0;
	const Elf64_Phdr *s = image_get_segments(image, &count);
	const struct image_mapping *mapping = image_get_mappings(image, &mappings);
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		while (m < mappings && mapping[m].end <= s[i].p_vaddr)
			m++;
		if (m == mappings)
			return -EINVAL;
		if (!s[i].p_filesz)
			continue;
		err = add_unloaded(l, at, s[i].p_offset);
		if (!err)
			err = add_segment(l, &s[i], mapping[m].kind);
		at = s[i].p_offset + s[i].p_filesz;
	}
	return err ? err : add_unloaded(l, at, l->described->data_end);
}

static int sum_zeros(uint64_t size, uint64_t *ret)
{
	char *zeros = calloc(1, size);

	if (!zeros)
		return -ENOMEM;
	*ret = image_hash64(zeros, size);
	free(zeros);
	return 0;
}

/* Whole blocks of zeros that should be such need not be looked at. */
static int add_blocks(struct restart_loads *l, const uint64_t *sums)
{
	const struct image_blocks *d = l->described;
	uint64_t zero_sum;
	size_t load = 0;

	l->blocks = calloc(d->count + 1, sizeof(*l->blocks));
	if (!l->blocks || sum_zeros(d->block_size, &zero_sum) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < d->count; i++) {
		uint64_t offset = d->data_start + i * d->block_size, length = d->data_end - offset;
		struct plan_block *b = &l->blocks[l->block_count];

		if (length > d->block_size)
			length = d->block_size;
		*b = (struct plan_block){ offset, sums[i], (uint32_t)length, 0, (uint32_t)load, 0 };
		for (; load < l->load_count && l->loads[load].file_offset < offset + length; load++)
			b->load_count++;
		if (b->load_count || length < d->block_size || sums[i] != zero_sum)
			l->block_count++;
	}
	return 0;
}

int restart_loads_build(const struct image *image, bool vdso, struct restart_loads *ret)
{
	int err;

	*ret = (struct restart_loads){ .fd = image_fd(image), .described = image_get_blocks(image), .vdso = vdso };
	err = add_segments(ret, image);
	if (!err)
		err = add_blocks(ret, image_get_sums(image));
	return err ? err : restart_loads_sort(ret, image);
}
