/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory without the program's malloc: size classes, four a doubling, over raw mmap, one lock an arena. Blocks above
 * 128 KiB are mappings of their own. Zeroed on allocation, 16-byte aligned (page-aligned from a page on).
 * An arena's chunks are ordinary private memory: they are saved in and restored with a checkpoint, unless they were
 * mapped inside a device call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

#define ARENA_CLASSES 48 /* 16 bytes to 128 KiB */

struct chunk;

struct arena {
	struct lock lock;
	void *(*map)(size_t len); /* NULL: raw_mmap; else a page-aligned zeroed mapping or NULL */
	int (*unmap)(void *at, size_t len);
	void *free[ARENA_CLASSES];
	char *bump, *bump_end;
	struct chunk *chunks; /* the last one; each knows the one before */
	uint32_t chunk_count;
};

/* NULL when the kernel gives no memory. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_realloc(struct arena *a, void *p, size_t size);
/* NULL is taken. */
void arena_free(struct arena *a, void *p);
char *arena_strdup(struct arena *a, const char *s);
/* Gives back all blocks up to 128 KiB at once; larger ones are their owners' to free. */
void arena_done(struct arena *a);
