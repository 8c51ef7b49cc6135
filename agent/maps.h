/* SPDX-License-Identifier: BSD-2-Clause */
/* The mappings of this process, as /proc/self/maps tells them, and which pages of them were touched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/writer.h"

struct maps {
	struct image_mapping *mappings;
	uint32_t count, room;
	char *paths;
	uint32_t paths_length, paths_room;
	char *text; /* /proc/self/maps while it is read */
	size_t text_room;
	uint64_t vdso_start, vdso_end, vvar_start, vvar_end;
	struct memory_share *shares; /* memory_settle's: one a mapping */
};

/*
 * Reads and classifies all mappings; those of the device and scratch memory are left out. Everything lies in scratch memory.
 * 0, or -errno after fermata_fail, naming the mapping that cannot be held.
 */
int maps_read(struct maps *m);
static inline const char *maps_path(const struct maps *m, const struct image_mapping *v)
{
	return m->paths + v->path;
}

/* growing.c: the program has made @at one that grows downwards; whether a mapping that ends there is one. */
void growing_note(const void *at, size_t length);
bool growing_is(uint64_t end);

struct runs;
/* Appends the runs of @v to @runs: touched pages as data, the rest as empty. 0 or -errno. */
int pages_runs(const struct image_mapping *v, uint64_t from, uint64_t to, struct runs *runs);

struct runs {
	struct image_run *run;
	uint32_t count, room;
	uint32_t first; /* of the present mapping: a run lies within one */
};
int runs_add(struct runs *runs, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags);
