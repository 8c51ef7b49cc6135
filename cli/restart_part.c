/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A part of a job (--part): some of its processes and all below them, which this `fermata restart` brings back; others bring back the rest, elsewhere: in another network
 * namespace, say. One coordinator conducts all parts, that of the first who comes: nothing of the program runs before the last part has its memory.
 *
 *   restart --part 12 --\                      /-- capsule of 12
 *                        >--- coordinator ----<       RECREATE, PUBLISH, RECONNECT, REFILL: in step
 *   restart --part 17 --/                      \-- capsule of 17
 *
 * A part has a capsule of its own: what parts would have in common but for the network (memory, descriptors, a session) is found here, in the images, and refused.
 * What a connection of sockets joins the agents find. New processes of each part get numbers of a range of their own, for a later checkpoint is again one of the whole job.
 *
 * A part is of one host, as a capsule has one number for each process (restart_choose.c). The hosts of a job are parts of it as they are: nothing but the network can have been
 * between them.
 *
 * Owns nothing: closes the images that are not of the part.
 */
#include <err.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/restart.h"
#include "plugins/ipc/ipc_record.h"

struct parting {
	const struct restart *restart;
	bool *in; /* by index of the process */
};

static int find(const struct restart *r, uint32_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].info->pid == pid)
			return (int)i;
	return -1;
}

static bool is_in(const struct parting *p, size_t i)
{
	return p->in[i];
}

/* ---- who ---- */

static int name_one(struct parting *p, const char *text)
{
	const struct manifest_image *named = restart_choose_process(p->restart, "--part", text);

	for (size_t i = 0; named && i < p->restart->count; i++)
		p->in[i] |= p->restart->processes[i].named == named;
	return named ? 0 : CLI_USAGE;
}

static void add_below(struct parting *p)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < p->restart->count; i++) {
			int parent = find(p->restart, p->restart->processes[i].info->ppid);

			if (parent >= 0 && p->in[parent] && !p->in[i])
				p->in[i] = more = true;
		}
	}
}

static int name_all(struct parting *p, const char *text)
{
	char *names = strdup(text), *rest = names, *name;
	int code = names ? 0 : CLI_CANNOT;

	while (!code && (name = strsep(&rest, ",")))
		code = name_one(p, name);
	free(names);
	add_below(p);
	return code;
}

/* ---- what may not lie across ---- */

static bool apart(const struct parting *p, size_t i, uint32_t pid)
{
	int other = find(p->restart, pid);

	return other >= 0 && is_in(p, i) != is_in(p, (size_t)other);
}

static int check_tree(const struct parting *p, size_t i)
{
	const struct image_process *info = p->restart->processes[i].info;
	const struct { uint32_t pid; const char *what; } of[] = {
		{ info->ppid, "is a child" }, { info->sid, "is in the session" }, { info->pgid, "is in the process group" },
	};

	for (size_t n = 0; n < sizeof(of) / sizeof(of[0]); n++)
		if (apart(p, i, of[n].pid)) {
			warnx("--part: process %u %s of process %u: both have to be of one part", info->pid, of[n].what, of[n].pid);
			return CLI_CANNOT;
		}
	return 0;
}

static bool is_ipc(const struct image_resource *r)
{
	return r->kind == IMAGE_RESOURCE_PLAIN &&
	       ((!strcmp(r->plugin, "ipc") && r->length > sizeof(struct ipc_record)) || (!strcmp(r->plugin, "mqueue") && r->length));
}

static bool has_fd(const struct image_resource *r, int32_t wanted)
{
	const struct image_fd *fds = (const void *)((const char *)(r + 1) + (r->length + 7) / 8 * 8);

	for (uint32_t i = 0; i < r->fd_count; i++)
		if (fds[i].fd == wanted)
			return true;
	return false;
}

/* A standard stream of the job: each part has that of its own `fermata restart`. */
static bool leads_out(const struct parting *p, const struct image_foreign *f)
{
	int leader = find(p->restart, f->leader_pid);
	struct image_note_view note;
	size_t cursor = 0;

	while (leader >= 0 && image_next_note(p->restart->processes[leader].image, &cursor, &note)) {
		const struct image_resource *r = note.data;

		if (note.type == IMAGE_NOTE_RESOURCE && r->kind == IMAGE_RESOURCE_DESC && has_fd(r, f->leader_fd))
			return !strcmp(r->plugin, "stdio");
	}
	return false;
}

static int check_foreign(const struct parting *p, size_t i, const struct image_resource *r)
{
	const struct image_foreign *f = (const void *)(r + 1);

	if (r->kind != IMAGE_RESOURCE_FOREIGN || r->length < sizeof(*f) || !apart(p, i, f->leader_pid) || leads_out(p, f))
		return 0;
	warnx("--part: process %u has a descriptor in common with process %u (its fd %d): both have to be of one part",
	      p->restart->processes[i].info->pid, f->leader_pid, f->leader_fd);
	return CLI_CANNOT;
}

static int check_resources(const struct parting *p, size_t i)
{
	const struct restart_process *process = &p->restart->processes[i];
	struct image_note_view note;
	size_t cursor = 0;
	int code = 0;

	while (!code && image_next_note(process->image, &cursor, &note)) {
		if (note.type != IMAGE_NOTE_RESOURCE)
			continue;
		code = check_foreign(p, i, note.data);
		if (!code && is_ipc(note.data)) {
			warnx("--part: process %u has semaphores or message queues, which cannot be in two parts", process->info->pid);
			code = CLI_CANNOT;
		}
	}
	return code;
}

static bool is_shared(const struct image_mapping *m)
{
	return m->kind == IMAGE_MAPPING_SHARED_ANON || m->kind == IMAGE_MAPPING_SHARED_FILE || m->kind == IMAGE_MAPPING_SYSV;
}

/* A file that both only read is no memory of the job's. */
static bool maps(const struct restart_process *p, const struct image_mapping *wanted)
{
	bool is_file = wanted->kind == IMAGE_MAPPING_SHARED_FILE;
	size_t n;
	const struct image_mapping *m = image_get_mappings(p->image, &n);

	for (size_t i = 0; i < n; i++)
		if (m[i].kind == wanted->kind && m[i].dev == wanted->dev && m[i].ino == wanted->ino &&
		    (!is_file || (m[i].prot | wanted->prot) & PROT_WRITE))
			return true;
	return false;
}

static int check_memory(const struct parting *p, size_t i)
{
	const struct restart *r = p->restart;
	size_t n;
	const struct image_mapping *m = image_get_mappings(r->processes[i].image, &n);

	for (size_t at = 0; at < n; at++)
		for (size_t other = 0; is_shared(&m[at]) && other < r->count; other++)
			if (!is_in(p, other) && maps(&r->processes[other], &m[at])) {
				warnx("--part: process %u shares memory with process %u (%s): both have to be of one part",
				      r->processes[i].info->pid, r->processes[other].info->pid,
				      image_mapping_path(r->processes[i].image, &m[at]));
				return CLI_CANNOT;
			}
	return 0;
}

/* The tree first: a child has its parent's descriptors, too, and with which of both they are saved depends on their numbers. */
static int check_all(const struct parting *p)
{
	int code = 0;

	for (size_t i = 0; i < p->restart->count && !code; i++)
		code = check_tree(p, i);
	for (size_t i = 0; i < p->restart->count && !code; i++) {
		code = check_resources(p, i);
		if (!code && is_in(p, i))
			code = check_memory(p, i);
	}
	return code;
}

/* ---- the others go ---- */

static uint64_t memory_of(const struct restart_process *p)
{
	uint64_t bytes = 0;
	size_t n;
	const Elf64_Phdr *s = image_get_segments(p->image, &n);

	for (size_t i = 0; i < n; i++)
		bytes += s[i].p_filesz;
	return bytes;
}

static void keep_part(struct restart *r, const struct parting *p)
{
	size_t kept = 0;

	r->parts = r->count;
	r->part_rank = 0;
	for (size_t i = 0; i < r->count && !p->in[i]; i++)
		r->part_rank++;
	for (size_t i = 0; i < r->count; i++) {
		if (p->in[i]) {
			r->processes[kept++] = r->processes[i];
			continue;
		}
		r->memory -= memory_of(&r->processes[i]);
		image_free(r->processes[i].image);
	}
	r->count = kept;
}

int restart_part_take(struct restart *r)
{
	struct parting p = { .restart = r };
	bool all = true;
	int code;

	if (!r->part)
		return 0;
	p.in = calloc(r->count, sizeof(*p.in));
	code = p.in ? name_all(&p, r->part) : CLI_CANNOT;
	for (size_t i = 0; i < r->count && !code; i++)
		all &= p.in[i];
	if (!code && !all)
		code = check_all(&p);
	if (!code)
		keep_part(r, &p);
	free(p.in);
	return code;
}
