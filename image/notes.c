/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The head notes of an image: the standard ones, for debuggers, and ours. Built twice by the same code,
 * first to count the bytes. Without libc state. Owns nothing.
 */
#include <string.h>
#include <sys/procfs.h>

#include "image/internal.h"

#define FXSAVE_SIZE 512u

struct out {
	char *at; /* NULL: count only */
	uint64_t length;
};

static void put(struct out *o, const void *data, uint64_t length)
{
	if (o->at)
		memcpy(o->at + o->length, data, length);
	o->length += length;
}

static void put_padding(struct out *o)
{
	static const char zeros[4];

	put(o, zeros, ALIGN_UP(o->length, 4) - o->length);
}

/* The descriptor's @length bytes are to follow, then put_padding(). */
static void put_header(struct out *o, const char *owner, uint32_t type, uint64_t length)
{
	Elf64_Nhdr h = { .n_namesz = (uint32_t)strlen(owner) + 1, .n_descsz = (uint32_t)length, .n_type = type };

	put(o, &h, sizeof(h));
	put(o, owner, h.n_namesz);
	put_padding(o);
}

static void put_note(struct out *o, const char *owner, uint32_t type, const void *data, uint64_t length)
{
	put_header(o, owner, type, length);
	put(o, data, length);
	put_padding(o);
}

char *image_note_header(char *at, const char *owner, uint32_t type, uint32_t length)
{
	struct out o = { .at = at };

	put_header(&o, owner, type, length);
	return at + o.length;
}

static void put_prstatus(struct out *o, const struct image_process *p, const struct image_thread *t, const void *fxsave)
{
	struct elf_prstatus s;

	memset(&s, 0, sizeof(s));
	s.pr_pid = (pid_t)t->tid;
	s.pr_ppid = (pid_t)p->ppid;
	s.pr_pgrp = (pid_t)p->pgid;
	s.pr_sid = (pid_t)p->sid;
	s.pr_sigpend = t->pending | t->queued | p->pending;
	s.pr_sighold = t->sigmask;
	s.pr_fpvalid = fxsave != NULL;
	_Static_assert(sizeof(s.pr_reg) == sizeof(t->user_regs), "registers");
	memcpy(&s.pr_reg, t->user_regs, sizeof(s.pr_reg));
	put_note(o, "CORE", NT_PRSTATUS, &s, sizeof(s));
	if (fxsave)
		put_note(o, "CORE", NT_FPREGSET, fxsave, FXSAVE_SIZE);
}

static void put_prpsinfo(struct out *o, const struct image_file *f)
{
	const struct image_process *p = f->dump->process;
	struct elf_prpsinfo s;
	uint64_t length = p->mm.arg_end - p->mm.arg_start, done = 0;

	memset(&s, 0, sizeof(s));
	s.pr_sname = 'S';
	s.pr_state = 1;
	s.pr_uid = p->uid;
	s.pr_gid = p->gid;
	s.pr_pid = (pid_t)p->pid;
	s.pr_ppid = (pid_t)p->ppid;
	s.pr_pgrp = (pid_t)p->pgid;
	s.pr_sid = (pid_t)p->sid;
	memcpy(s.pr_fname, p->comm, sizeof(s.pr_fname) - 1);
	if (length > sizeof(s.pr_psargs) - 1)
		length = sizeof(s.pr_psargs) - 1;
	if (p->mm.arg_start < p->mm.arg_end)
		image_memory_copy(f, s.pr_psargs, p->mm.arg_start, length, &done);
	if (!done)
		memcpy(s.pr_psargs, p->comm, sizeof(p->comm) - 1);
	for (uint64_t i = 0; i + 1 < done; i++)
		if (!s.pr_psargs[i])
			s.pr_psargs[i] = ' ';
	put_note(o, "CORE", NT_PRPSINFO, &s, sizeof(s));
}

static bool is_named_file(const struct image_dump *d, const struct image_mapping *m)
{
	return (m->kind == IMAGE_MAPPING_FILE || m->kind == IMAGE_MAPPING_SHARED_FILE) && m->path < d->paths_length &&
	       d->paths[m->path] == '/';
}

static void put_files(struct out *o, const struct image_dump *d)
{
	uint64_t head[2] = { 0, FM_PAGE_SIZE }, names = 0;

	for (uint32_t i = 0; i < d->mapping_count; i++)
		if (is_named_file(d, &d->mappings[i])) {
			head[0]++;
			names += strlen(d->paths + d->mappings[i].path) + 1;
		}
	put_header(o, "CORE", NT_FILE, sizeof(head) + head[0] * 24 + names);
	put(o, head, sizeof(head));
	for (uint32_t i = 0; i < d->mapping_count; i++) {
		const struct image_mapping *m = &d->mappings[i];
		uint64_t entry[3] = { m->start, m->end, m->offset / FM_PAGE_SIZE };

		if (is_named_file(d, m))
			put(o, entry, sizeof(entry));
	}
	for (uint32_t i = 0; i < d->mapping_count; i++)
		if (is_named_file(d, &d->mappings[i]))
			put(o, d->paths + d->mappings[i].path, strlen(d->paths + d->mappings[i].path) + 1);
	put_padding(o);
}

static void put_debugger_notes(struct out *o, const struct image_file *f)
{
	const struct image_dump *d = f->dump;
	bool first = true;

	for (uint32_t i = 0; i < d->process->thread_count; i++) {
		if (d->threads[i].flags & IMAGE_THREAD_AGENT)
			continue;
		put_prstatus(o, d->process, &d->threads[i], d->fxsave ? d->fxsave[i] : NULL);
		if (!first)
			continue;
		first = false;
		put_prpsinfo(o, f);
		put_note(o, "CORE", NT_AUXV, d->process->auxv, d->process->auxv_length);
		put_files(o, d);
	}
}

static void put_mappings(struct out *o, const struct image_dump *d)
{
	const struct image_mappings head = {
		.count = d->mapping_count,
		.entry_size = sizeof(struct image_mapping),
		.paths_length = d->paths_length,
	};
	uint64_t entries = (uint64_t)d->mapping_count * sizeof(struct image_mapping);

	put_header(o, IMAGE_NOTE_OWNER, IMAGE_NOTE_MAPPINGS, sizeof(head) + entries + d->paths_length);
	put(o, &head, sizeof(head));
	put(o, d->mappings, entries);
	put(o, d->paths, d->paths_length);
	put_padding(o);
}

uint64_t image_notes_build(const struct image_file *f, char *at)
{
	static const struct image_version version = { .version = IMAGE_VERSION, .writer = "fermata " FERMATA_VERSION };
	const struct image_dump *d = f->dump;
	struct out o = { .at = at };

	put_note(&o, IMAGE_NOTE_OWNER, IMAGE_NOTE_VERSION, &version, sizeof(version));
	put_debugger_notes(&o, f);
	put_note(&o, IMAGE_NOTE_OWNER, IMAGE_NOTE_PROCESS, d->process, sizeof(*d->process));
	for (uint32_t i = 0; i < d->process->thread_count; i++)
		put_note(&o, IMAGE_NOTE_OWNER, IMAGE_NOTE_THREAD, &d->threads[i], sizeof(d->threads[i]));
	put_mappings(&o, d);
	for (uint32_t i = 0; i < d->note_count; i++)
		put_note(&o, IMAGE_NOTE_OWNER, d->notes[i].type, d->notes[i].data, d->notes[i].length);
	return o.length;
}
