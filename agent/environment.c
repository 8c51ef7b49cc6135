/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The job in the environment of programs that are begun after a restart: its directory and its RDMA device are those of this life, while the program's own
 * environment is of the former one. The wrappers of exec put them in place of what the program hands on, which is often a copy of its own (shells, python). What libc begins
 * by itself (system, popen) gets environ: there they are written over the former ones, where these still lie as the kernel had laid them on the stack, and are as
 * long. Entries that the program has made since are its own: it may free them.
 *
 * Owns the two entries. They are written while the program stands still.
 */
#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>

#define ROOM (16 + sizeof(agent.jobdir))

static struct entry {
	const char *name; /* with its = */
	char now[ROOM];
	char *first; /* where the kernel laid it; NULL: there was none */
	size_t length;
} entries[] = { { .name = "FERMATA_JOBDIR=" }, { .name = "FERMATA_RDMA=" } };

static bool is_of(const char *text, const struct entry *e)
{
	return !strncmp(text, e->name, strlen(e->name));
}

void environment_init(void)
{
	extern char **environ;

	for (struct entry *e = entries; e < entries + ARRAY_SIZE(entries); e++)
		for (char **at = environ; at && *at && !e->first; at++)
			if (is_of(*at, e)) {
				e->first = *at;
				e->length = strlen(*at);
			}
}

char *environment_entry(char *entry)
{
	for (struct entry *e = entries; agent.generation && e < entries + ARRAY_SIZE(entries); e++)
		if (is_of(entry, e))
			return e->now;
	return entry;
}

void environment_restarted(void)
{
	fm_format(entries[0].now, ROOM, "%s%s", entries[0].name, agent.jobdir);
	fm_format(entries[1].now, ROOM, "%s%s", entries[1].name, agent.rdma);
	for (struct entry *e = entries; e < entries + ARRAY_SIZE(entries); e++)
		if (e->first && is_of(e->first, e) && strlen(e->now) <= e->length)
			memcpy(e->first, e->now, strlen(e->now) + 1);
}
