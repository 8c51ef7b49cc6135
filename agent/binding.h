/* SPDX-License-Identifier: BSD-2-Clause */
/* The nodes (NUMA) that a mapping's new pages come from, where the program has said so of that mapping: mbind(2). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct binding {
	uint32_t policy; /* MPOL_* and its flags */
	uint64_t nodes[16]; /* bit N of word N / 64 */
};

/* Of the mapping at @at. False: none, its pages come from where their thread has them. */
bool binding_get(uint64_t at, struct binding *ret);
/* The pages that are there already move, where they lie elsewhere. 0 or -errno: EINVAL where the host has no such nodes. */
int binding_set(uint64_t start, uint64_t length, const struct binding *b);
