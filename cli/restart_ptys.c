/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pseudo-terminals of the job whose numbers somebody else has by now: a program that opens its terminal again by the name that it has kept (/dev/pts/N) would open
 * a stranger's. So the capsule then has a /dev/pts of its own, in which all numbers are free. It does not show the terminal that `fermata restart` was given, whose name
 * ttyname(3) does not find there; so where all numbers are free, /dev/pts stays the host's. Owns nothing: the records lie in the images.
 */
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cli/restart.h"
#include "plugins/pty/pty_record.h"

static bool is_taken(uint32_t number)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/pts/%u", number);
	return !access(path, F_OK);
}

/* Whether a master of this process needs a number that is somebody else's. Those of a damaged record the plugin refuses. */
static bool wants_taken(const struct restart_process *p)
{
	struct image_note_view note;
	size_t cursor = 0;

	while (image_next_note(p->image, &cursor, &note)) {
		const struct image_resource *r = note.data;
		const struct pty_record *record = (const void *)(r + 1);

		if (note.type == IMAGE_NOTE_RESOURCE && r->kind == IMAGE_RESOURCE_DESC && !strcmp(r->plugin, "pty") &&
		    r->length >= sizeof(*record) && record->kind == PTY_MASTER && is_taken(record->number))
			return true;
	}
	return false;
}

void restart_ptys_mount(const struct restart *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (wants_taken(&r->processes[i])) {
			if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666,mode=0620") < 0)
				warn("the job's pseudo-terminals get other numbers, for a /dev/pts of its own cannot be mounted");
			return;
		}
}
