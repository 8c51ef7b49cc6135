/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata inspect: System V memory, the contents of files and the plugins' records of an image, in words. Owns nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

void inspect_print_sysv(const struct image *i)
{
	size_t count;
	const struct image_sysv *s = image_get_sysv(i, &count);

	if (count)
		printf("  System V   %zu\n", count);
	for (size_t n = 0; n < count; n++)
		printf("    memory %-8d key %08x, %" PRIu64 " bytes%s, mode %04o, owner %u.%u, made by process %d\n", s[n].id,
		       (unsigned int)s[n].key, s[n].size, s[n].page_shift ? " in huge pages" : "", s[n].mode, s[n].uid, s[n].gid, s[n].cpid);
}

void inspect_print_contents(const struct image *i)
{
	size_t count = image_count_contents(i);

	if (count)
		printf("  files      %zu\n", count);
	for (size_t n = 0; n < count; n++) {
		const struct image_content *c = image_get_content(i, n);

		printf("    %-7s %12" PRIu64 " bytes  %s", inspect_content_names[c->kind], c->size, image_content_path(i, c));
		if (image_content_is_saved(c))
			printf(", in %s", image_content_name(i, c));
		putchar('\n');
	}
}

static void print_resource(const struct image_resource *r)
{
	const struct image_fd *fds = inspect_fds(r);
	struct image_foreign foreign;

	printf("    %-15.15s %-11s %6u bytes", r->plugin, inspect_resource_names[r->kind & 3], r->length);
	if (r->kind == IMAGE_RESOURCE_FOREIGN) {
		memcpy(&foreign, r + 1, sizeof(foreign));
		printf(", led by process %u as %d", foreign.leader_pid, foreign.leader_fd);
	}
	for (uint32_t n = 0; n < r->fd_count; n++)
		printf("%s%d%s", n ? ", " : r->fd_count == 1 ? ", descriptor " : ", descriptors ", fds[n].fd,
		       fds[n].flags ? " (close-on-exec)" : "");
	putchar('\n');
}

void inspect_print_resources(const struct image *i)
{
	struct image_note_view note;
	size_t cursor = 0, count = 0;

	while (image_next_note(i, &cursor, &note))
		count += note.type == IMAGE_NOTE_RESOURCE;
	printf("  resources  %zu\n", count);
	for (cursor = 0; image_next_note(i, &cursor, &note);)
		if (note.type == IMAGE_NOTE_RESOURCE)
			print_resource(note.data);
}
