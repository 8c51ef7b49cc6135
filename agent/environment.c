/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The job in the environment of programs that are begun after a restart: its directory and its RDMA device are those of this life, while the program's own
 * environment is of the former one. The wrappers of exec put them in place of what the program hands on, which is often a copy of its own (shells, python). What libc begins
 * by itself (system, popen) gets environ: there they are written over the former ones, where these still lie as the kernel had laid them on the stack, and are as
 * long. Entries that the program has made since are its own: it may free them. If our library has moved (fermata restart --map), the entries that lead to it do likewise.
 *
 * Of which host of the job they are (host.c), and what the job was begun with (begun.c), is put in its place in any life.
 *
 * Owns the entries. They are written in the constructor, or while the program stands still.
 */
#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>

#include "base/begun.h"
#include "base/host_id.h"

#define ROOM (16 + sizeof(agent.libdir))
#define PRELOAD "LD_PRELOAD="
#define PRELOAD_MAX 4096

enum { JOBDIR, RDMA, LIBDIR, HOST, BEGUN };

static struct entry {
	const char *name; /* with its = */
	char now[ROOM];
	char *first; /* where the kernel laid it; NULL: there was none */
	size_t length;
} entries[] = { { .name = "FERMATA_JOBDIR=" }, { .name = "FERMATA_RDMA=" }, { .name = "FERMATA_LIBDIR=" }, { .name = HOST_ID_VARIABLE }, { .name = BEGUN_VARIABLE } };

static char *preload; /* the kernel's LD_PRELOAD, or ours in its place; NULL: there was none */
static bool lib_moved; /* since this program was begun: its entries that name our library are not true any more */

_Static_assert(ROOM >= 16 + sizeof(agent.jobdir), "FERMATA_JOBDIR");
_Static_assert(ROOM >= HOST_ID_ENTRY && ROOM >= BEGUN_ENTRY, "FERMATA_HOST, FERMATA_BEGUN");

/* Copies of what the loader and we had it from: unsetenv() takes entries out of the list that the kernel has laid, and who writes a title over its arguments (setproctitle) clears the text. */
static char *initial[ENVIRONMENT_KEPT];

const char *const environment_kept[ENVIRONMENT_KEPT] = { "LD_PRELOAD=", "LD_LIBRARY_PATH=", "FERMATA_JOBDIR=", "FERMATA_LIBDIR=", "FERMATA_RDMA=", "FERMATA_REMOTE=" };

static bool is_of(const char *text, const struct entry *e)
{
	return !strncmp(text, e->name, strlen(e->name));
}

static void put_in_place(struct entry *e)
{
	if (e->first && is_of(e->first, e) && strlen(e->now) <= e->length)
		memcpy(e->first, e->now, strlen(e->now) + 1);
}

/* What has come with an environment from another machine is not true here. */
static void note_host(void)
{
	host_id_entry(entries[HOST].now, agent.where, agent.part, agent.host);
	put_in_place(&entries[HOST]);
	environment_begun_again();
}

/* Its length does not change, and of its bytes those alone that are others now. */
void environment_begun_again(void)
{
	begun_entry(entries[BEGUN].now, agent.where, fermata_begun());
	put_in_place(&entries[BEGUN]);
}

/* In the program's own list. */
static char *find(const char *name)
{
	extern char **environ;

	for (char **at = environ; at && *at; at++)
		if (!strncmp(*at, name, strlen(name)))
			return *at;
	return NULL;
}

static void keep_initial(void)
{
	for (size_t i = 0; i < ENVIRONMENT_KEPT; i++) {
		const char *entry = find(environment_kept[i]);

		initial[i] = entry ? arena_strdup(&agent_arena, entry) : NULL;
	}
}

void environment_init(void)
{
	extern char **environ;

	keep_initial();
	for (struct entry *e = entries; e < entries + ARRAY_SIZE(entries); e++)
		for (char **at = environ; at && *at && !e->first; at++)
			if (is_of(*at, e)) {
				e->first = *at;
				e->length = strlen(*at);
			}
	preload = find(PRELOAD);
	fm_format(entries[LIBDIR].now, ROOM, "%s%s", entries[LIBDIR].name, agent.libdir);
	note_host();
}

const char *environment_find(size_t kept)
{
	const char *now = find(environment_kept[kept]);

	return now ? now : initial[kept];
}

char *environment_entry(char *entry)
{
	for (struct entry *e = entries; e < entries + ARRAY_SIZE(entries); e++)
		if ((e == &entries[LIBDIR] ? lib_moved : agent.generation || e >= &entries[HOST]) && is_of(entry, e))
			return e->now;
	return entry;
}

/* Ours, then what else there is: the loader takes the list apart at spaces and colons. */
static void build_preload(const char *list, char *buf, size_t size)
{
	size_t at = fm_format(buf, size, PRELOAD "%s/libfermata.so", agent.libdir), n;

	for (; *list && at < size; list += n) {
		list += strspn(list, " :");
		n = strcspn(list, " :");
		if (n && !memmem(list, n, "libfermata.so", sizeof("libfermata.so") - 1))
			at += fm_format(buf + at, size - at, ":%.*s", (int)n, list);
	}
}

char *environment_preload(char *entry, char *buf, size_t size)
{
	if (strncmp(entry, PRELOAD, sizeof(PRELOAD) - 1) || (strstr(entry, "libfermata.so") && !lib_moved))
		return entry;
	build_preload(entry + sizeof(PRELOAD) - 1, buf, size);
	return buf;
}

/* In the program's list, where that still leads to @of. */
static void replace(const char *of, char *by)
{
	extern char **environ;

	for (char **at = environ; of && at && *at; at++)
		if (*at == of)
			*at = by;
}

/* Other than the rest these may be longer than they were. */
static void move_library(void)
{
	char text[PRELOAD_MAX], *now;

	if (strpbrk(agent.libdir, " :"))
		log_warn("%s: the loader cannot preload a file with a space or colon in its path: what this process begins will be outside of the job", agent.libdir);
	replace(entries[LIBDIR].first, entries[LIBDIR].now);
	entries[LIBDIR].first = NULL;
	if (!preload || !strstr(preload, "libfermata.so"))
		return;
	build_preload(preload + sizeof(PRELOAD) - 1, text, sizeof(text));
	now = arena_strdup(&agent_arena, text);
	replace(preload, now ? now : preload);
	preload = now ? now : preload;
}

const char *environment_host(void)
{
	return entries[HOST].now;
}

const char *environment_begun(void)
{
	return entries[BEGUN].now;
}

void environment_restarted(void)
{
	char libdir[ROOM];

	fm_format(libdir, ROOM, "%s%s", entries[LIBDIR].name, agent.libdir);
	if (strcmp(libdir, entries[LIBDIR].now)) {
		lib_moved = true;
		memcpy(entries[LIBDIR].now, libdir, strlen(libdir) + 1);
		move_library();
	}
	fm_format(entries[JOBDIR].now, ROOM, "%s%s", entries[JOBDIR].name, agent.jobdir);
	fm_format(entries[RDMA].now, ROOM, "%s%s", entries[RDMA].name, agent.rdma);
	note_host();
	put_in_place(&entries[JOBDIR]);
	put_in_place(&entries[RDMA]);
}
