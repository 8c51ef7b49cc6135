/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plugins' records of the checkpoint under way: the bytes of each, in arena memory. They go into the image as notes, and, being
 * memory themselves, are there again after a restart, for recreate.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#include "agent/fd.h"
#include "agent/plugins.h"
#include "agent/sink.h"
#include "image/writer.h"

static struct image_note_data *notes;
static uint32_t count, room;

/* A note: the head, the record, the descriptors. */
static int emit(void *arg, const struct image_resource *r, const void *record, size_t len, const struct image_fd *fds)
{
	size_t fds_at = ALIGN_UP(sizeof(*r) + len, (size_t)8), total = fds_at + r->fd_count * sizeof(*fds);
	struct image_note_data *more;
	uint8_t *bytes;

	(void)arg;
	if (count == room) {
		more = arena_realloc(&agent_arena, notes, (room * 2 + 16) * sizeof(*notes));
		if (!more)
			return fermata_fail(-ENOMEM, "no memory for %u records", count + 1);
		notes = more;
		room = room * 2 + 16;
	}
	bytes = arena_alloc(&agent_arena, total);
	if (!bytes)
		return fermata_fail(-ENOMEM, "no memory for a record of %zu bytes", total);
	memcpy(bytes, r, sizeof(*r));
	if (len)
		memcpy(bytes + sizeof(*r), record, len);
	if (r->fd_count)
		memcpy(bytes + fds_at, fds, r->fd_count * sizeof(*fds));
	notes[count++] = (struct image_note_data){ IMAGE_NOTE_RESOURCE, (uint32_t)total, bytes };
	return 0;
}

static int dump_plain(const struct fermata_plugin *p)
{
	struct image_resource r = { .kind = IMAGE_RESOURCE_PLAIN };
	struct fermata_sink sink = { 0 };
	int err = p->dump(&sink);

	fm_format(r.plugin, sizeof(r.plugin), "%s", p->name);
	r.length = (uint32_t)sink.len;
	if (!err)
		err = emit(NULL, &r, sink.data, sink.len, NULL);
	fermata_free(sink.data);
	return err;
}

int records_dump(void)
{
	int r = 0;

	records_free();
	for (const struct fermata_plugin *const *p = agent_plugins; *p && !r; p++)
		if ((*p)->dump)
			r = dump_plain(*p);
	return r ? r : fd_dump(emit, NULL);
}

const struct image_note_data *records_notes(uint32_t *ret_count)
{
	*ret_count = count;
	return notes;
}

const void *records_plain(const char *plugin, size_t *ret_len)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct image_resource *r = notes[i].data;

		if (r->kind == IMAGE_RESOURCE_PLAIN && !strcmp(r->plugin, plugin)) {
			*ret_len = r->length;
			return r + 1;
		}
	}
	return NULL;
}

void records_free(void)
{
	for (uint32_t i = 0; i < count; i++)
		arena_free(&agent_arena, (void *)notes[i].data);
	count = 0;
}
