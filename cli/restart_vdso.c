/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The vdso: code and data that the kernel maps into each process, and that libc calls by addresses it has looked up once. Another kernel gives
 * another one. Owns what this kernel's looks like.
 *
 * Where the image's is the same, the kernel's own is moved to where it was. Else the image's stays as ordinary memory: its code with a
 * jump at the head of each function to that of the same name in this kernel's, which lies in a place of its own; its data as zeros.
 *
 *   0x1000........ [hole][vvar vdso, this kernel's] ........ [zeros][vdso of the image: jmp -> ...] .... stack
 *
 * The old code's own instructions run only for a function that this kernel lacks, or for a call that a signal handler had interrupted before the
 * checkpoint (no thread is stopped in the vdso itself: agent/stop.c). Zeros as its data make it call the kernel: the clocks' mode 0 is "none",
 * and a sequence count that has changed makes a reader begin anew.
 */
#include "cli/restart.h"

#include <elf.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/macro.h"
#include "image/hash.h"

#define VDSO_MAX (64u << 10)

int restart_vdso_probe(struct restart_vdso *h)
{
	struct image_piece piece;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	memset(h, 0, sizeof(*h));
	while (f && fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if ((!strstr(line, "[vvar") && !strstr(line, "[vdso]")) || sscanf(line, "%lx-%lx", &start, &end) != 2 ||
		    h->count == ARRAY_SIZE(h->areas))
			continue;
		h->areas[h->count].start = start;
		h->areas[h->count++].end = end;
		if (strstr(line, "[vdso]")) {
			h->start = start;
			h->end = end;
		}
	}
	if (f)
		fclose(f);
	if (!h->start || h->start != getauxval(AT_SYSINFO_EHDR) || h->end - h->areas[0].start > VDSO_MAX)
		return -ENOENT;
	piece = (struct image_piece){ (const void *)h->start, h->end - h->start };
	image_hash128(&piece, 1, h->digest);
	return 0;
}

bool restart_vdso_same(const struct restart_vdso *h, const struct restart_process *p)
{
	size_t n, found = 0;
	const struct image_mapping *m = image_get_mappings(p->image, &n);

	for (size_t i = 0; i < n; i++) {
		if (m[i].kind != IMAGE_MAPPING_VDSO)
			continue;
		if (found == h->count || m[i].start - p->info->vdso_start != h->areas[found].start - h->start ||
		    m[i].end - p->info->vdso_start != h->areas[found].end - h->start)
			return false;
		found++;
	}
	return found == h->count && !memcmp(image_get_host(p->image)->vdso_digest, h->digest, sizeof(h->digest));
}

/* ---- functions ---- */

struct symbols {
	const char *base;
	uint64_t size; /* of what is at @base */
	const Elf64_Sym *table;
	const char *names;
	uint64_t count, names_size;
};

static const void *part(const struct symbols *s, uint64_t offset, uint64_t size)
{
	return offset <= s->size && size <= s->size - offset ? s->base + offset : NULL;
}

/* By the section headers, which the kernel maps as well. */
static int symbols_find(struct symbols *s)
{
	const Elf64_Ehdr *e = part(s, 0, sizeof(*e));
	const Elf64_Shdr *h = e ? part(s, e->e_shoff, (uint64_t)e->e_shnum * sizeof(*h)) : NULL;

	for (unsigned int i = 0; h && i < e->e_shnum; i++) {
		if (h[i].sh_type != SHT_DYNSYM || h[i].sh_link >= e->e_shnum)
			continue;
		s->count = h[i].sh_size / sizeof(*s->table);
		s->table = part(s, h[i].sh_offset, h[i].sh_size);
		s->names_size = h[h[i].sh_link].sh_size;
		s->names = part(s, h[h[i].sh_link].sh_offset, s->names_size);
		return s->table && s->names && s->names_size && !s->names[s->names_size - 1] ? 0 : -EBADMSG;
	}
	return -EBADMSG;
}

/* A function's name, by which kernels know each of them once; NULL: something else. */
static const char *function_name(const struct symbols *s, const Elf64_Sym *y)
{
	const char *name = y->st_name < s->names_size ? s->names + y->st_name : "";

	return ELF64_ST_TYPE(y->st_info) == STT_FUNC && y->st_shndx != SHN_UNDEF && y->st_value < s->size &&
	       !strncmp(name, "__vdso_", 7) ? name : NULL;
}

static const Elf64_Sym *function_find(const struct symbols *s, const char *wanted)
{
	for (uint64_t i = 0; i < s->count; i++) {
		const char *name = function_name(s, &s->table[i]);

		if (name && !strcmp(name, wanted))
			return &s->table[i];
	}
	return NULL;
}

/* The image's code. NULL: it is damaged or is not there. */
static char *read_code(const struct restart_process *p)
{
	uint64_t size = p->info->vdso_end - p->info->vdso_start;
	struct image_piece piece;
	uint8_t digest[16];
	char *code = size && size <= VDSO_MAX ? malloc(size) : NULL;
	size_t n;
	const Elf64_Phdr *s = image_get_segments(p->image, &n);

	for (size_t i = 0; code && i < n; i++) {
		if (s[i].p_vaddr != p->info->vdso_start || s[i].p_filesz != size)
			continue;
		if (pread(image_fd(p->image), code, size, (off_t)s[i].p_offset) != (ssize_t)size)
			break;
		piece = (struct image_piece){ code, size };
		image_hash128(&piece, 1, digest);
		if (!memcmp(digest, image_get_host(p->image)->vdso_digest, sizeof(digest)))
			return code;
	}
	free(code);
	return NULL;
}

int restart_vdso_patches(const struct restart_vdso *h, const struct restart_process *p, uint64_t vdso_at,
			 struct plan_patch *patches, size_t room, size_t *ret_count)
{
	struct symbols old = { .base = read_code(p), .size = p->info->vdso_end - p->info->vdso_start };
	struct symbols new = { .base = (const char *)h->start, .size = h->end - h->start };
	size_t n = 0;
	int err = !old.base ? -EBADMSG : symbols_find(&old);

	if (!err)
		err = symbols_find(&new);
	for (uint64_t i = 0; !err && i < old.count; i++) {
		const char *name = function_name(&old, &old.table[i]);
		const Elf64_Sym *other = name ? function_find(&new, name) : NULL;

		if (!other || old.table[i].st_size < PLAN_JUMP_ROOM || n == room)
			continue;
		patches[n++] = (struct plan_patch){ p->info->vdso_start + old.table[i].st_value, vdso_at + other->st_value };
	}
	free((void *)old.base);
	*ret_count = n;
	return err ? err : n ? 0 : -ENOENT;
}
