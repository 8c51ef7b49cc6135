/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue of bytes: added at its end, done with from its front. Whoever has one owns it. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/internal.h"

bool bytes_add(struct bytes *b, const void *data, size_t len)
{
	if (b->len + len > b->size && b->at) {
		memmove(b->data, b->data + b->at, b->len - b->at);
		b->len -= b->at;
		b->at = 0;
	}
	if (b->len + len > b->size) {
		size_t size = (b->len + len) * 2;
		uint8_t *more = realloc(b->data, size);

		if (!more)
			return false;
		b->data = more;
		b->size = size;
	}
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	return true;
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){ 0 };
}
