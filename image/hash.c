/* SPDX-License-Identifier: BSD-2-Clause */
/* XXH3, compiled into this one file so that nothing but mem* is needed at run time. Owns no state. */
#include "image/hash.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t image_hash64(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
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
