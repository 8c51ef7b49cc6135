/* SPDX-License-Identifier: BSD-2-Clause */
/* Records in the making. Owns nothing: a sink's bytes belong to who holds the sink. No locks. */
#include "agent/sink.h"

#include <errno.h>
#include <string.h>

int fermata_sink_write(struct fermata_sink *s, const void *data, size_t len)
{
	if (len > s->room - s->len) {
		size_t room = s->room ? s->room * 2 : 128;
		char *more;

		while (room < s->len + len)
			room *= 2;
		more = fermata_alloc(room);
		if (!more)
			return fermata_fail(-ENOMEM, "no memory for a record of %zu bytes", room);
		if (s->len)
			memcpy(more, s->data, s->len);
		fermata_free(s->data);
		s->data = more;
		s->room = room;
	}
	if (len)
		memcpy(s->data + s->len, data, len);
	s->len += len;
	return 0;
}

void sink_done(struct fermata_sink *s)
{
	fermata_free(s->data);
	*s = (struct fermata_sink){ 0 };
}
