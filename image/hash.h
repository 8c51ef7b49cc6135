/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The image's checksums, without libc state. A 128-bit one is in its canonical (big-endian) form, as xxhsum
 * prints it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct image_piece {
	const void *data;
	size_t length;
};

uint64_t image_hash64(const void *data, size_t length); /* XXH3-64 */

/* The same over bytes that come piece by piece. */
struct image_hash {
	_Alignas(64) unsigned char state[576];
};
void image_hash64_begin(struct image_hash *h);
void image_hash64_add(struct image_hash *h, const void *data, size_t length);
uint64_t image_hash64_end(const struct image_hash *h);

/* XXH3-128 of the pieces one after the other. */
void image_hash128(const struct image_piece *pieces, size_t count, uint8_t ret[16]);
