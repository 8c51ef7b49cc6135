/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths that are another one now (fermata restart --map OLD=NEW): what lay below OLD is looked for below NEW. A rule is two texts, OLD and NEW, each with its NUL, and all
 * rules lie one behind the other: so they travel as they are, from the command into the plan and from there to the agent.
 *
 * Invariants, which who makes the texts keeps: both are absolute and have no slash at their end, so the root is the empty text; no OLD is there twice.
 */
#pragma once

#include <stddef.h>

struct path_map {
	const char *texts;
	size_t length; /* 0: every path is what it was */
};

/*
 * What @path is now: @path itself, where nothing has moved; else in @buf; NULL: it is longer than @size. The longest OLD that is @path or a directory above it
 * decides, once: what has been mapped is not mapped again.
 */
const char *path_map_apply(const struct path_map *m, const char *path, char *buf, size_t size);
