/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which blocks may be read into huge pages of the kernel's (transparent ones): the dense ones. Where the kernel gives them unasked, the first touch of an area makes all of it, so that
 * memory of which little was there would come back many times its size.
 *
 * An area is dense if most of it is loaded, or if it is not within one mapping, so that no huge page can be there. A block that loads to another one is not, nor is then what it has of a
 * dense one. Owns nothing.
 */
#include "cli/restart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"

#define AREA (2ull << 20) /* x86-64: a huge page */
#define DENSE (AREA / 8 * 7)

/* Of ascending addresses; the last one's start is behind all. */
struct area {
	uint64_t start, loaded;
};

/* Loads ascend, but for those to nowhere: all that go to an area follow each other. */
static size_t sum_areas(const struct restart_loads *l, struct area *areas)
{
	size_t n = 0;

	for (size_t i = 0; i < l->load_count; i++) {
		uint64_t at = l->loads[i].address, end = at + l->loads[i].length, piece;

		for (; at != PLAN_NOWHERE && at < end; at += piece) {
			uint64_t start = ALIGN_DOWN(at, AREA);

			piece = (end < start + AREA ? end : start + AREA) - at;
			if (!n || areas[n - 1].start != start)
				areas[n++] = (struct area){ start, 0 };
			areas[n - 1].loaded += piece;
		}
	}
	areas[n] = (struct area){ UINT64_MAX, 0 };
	return n;
}

static void see_mappings(struct area *areas, size_t count, const struct image *image)
{
	size_t mappings, m = 0;
	const struct image_mapping *mapping = image_get_mappings(image, &mappings);

	for (size_t i = 0; i < count; i++) {
		while (m < mappings && mapping[m].end < areas[i].start + AREA)
			m++;
		if (m == mappings || mapping[m].start > areas[i].start)
			areas[i].loaded = AREA;
	}
}

/* @at: an area at or in front of the block's first; moved on. */
static bool is_dense(const struct restart_loads *l, const struct plan_block *b, const struct area **at)
{
	bool dense = true;

	for (uint32_t i = 0; i < b->load_count; i++) {
		const struct plan_load *load = &l->loads[b->first_load + i];

		if (load->address == PLAN_NOWHERE)
			continue;
		while ((*at)->start + AREA <= load->address)
			++*at;
		for (const struct area *a = *at; a->start < load->address + load->length; a++)
			dense &= a->loaded >= DENSE;
	}
	return dense;
}

int restart_loads_sort(struct restart_loads *l, const struct image *image)
{
	struct plan_block *sparse = calloc(l->block_count + 1, sizeof(*sparse));
	size_t pieces = 1, n = 0;
	const struct area *at;
	struct area *areas;

	for (size_t i = 0; i < l->load_count; i++)
		pieces += l->loads[i].length / AREA + 2;
	areas = calloc(pieces, sizeof(*areas));
	if (!areas || !sparse) {
		free(areas);
		free(sparse);
		return -ENOMEM;
	}
	see_mappings(areas, sum_areas(l, areas), image);
	at = areas;
	for (size_t i = 0; i < l->block_count; i++)
		if (is_dense(l, &l->blocks[i], &at))
			l->blocks[l->dense_count++] = l->blocks[i];
		else
			sparse[n++] = l->blocks[i];
	memcpy(l->blocks + l->dense_count, sparse, n * sizeof(*sparse));
	free(areas);
	free(sparse);
	return 0;
}
