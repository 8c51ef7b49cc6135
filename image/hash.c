/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XXH3, compiled into this one file so that nothing but mem* is needed at run time. Owns no state. Built twice: for the library, and
 * freestanding for the restorer.
 */
#include "image/hash.h"

#include <string.h>

#define memcpy __builtin_memcpy /* freestanding, it would be a call for each word */
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t image_hash64(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
}

_Static_assert(sizeof(XXH3_state_t) == sizeof(struct image_hash) && _Alignof(XXH3_state_t) <= _Alignof(struct image_hash),
	       "struct image_hash holds it");

void image_hash64_begin(struct image_hash *h)
{
	XXH3_state_t *state = (XXH3_state_t *)h->state;

	XXH3_INITSTATE(state);
	XXH3_64bits_reset(state);
}

void image_hash64_add(struct image_hash *h, const void *data, size_t length)
{
	XXH3_64bits_update((XXH3_state_t *)h->state, data, length);
}

uint64_t image_hash64_end(const struct image_hash *h)
{
	return XXH3_64bits_digest((const XXH3_state_t *)h->state);
}

void image_hash128(const struct image_piece *pieces, size_t count, uint8_t ret[16])
{
	XXH3_state_t state;
	XXH128_canonical_t canonical;

	XXH3_INITSTATE(&state);
	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < count; i++)
		XXH3_128bits_update(&state, pieces[i].data, pieces[i].length);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
	memcpy(ret, canonical.digest, 16);
}
