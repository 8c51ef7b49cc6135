/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where everything stands in an image that is being written: counts headers and notes, places the runs,
 * builds the head and the tail in scratch memory. Without libc state. Owns the scratch memory of struct
 * image_file, from image_layout() to image_layout_done(); it is mapped after the caller listed its mappings,
 * so no run holds it.
 *
 *	head | run 0 | run 1 | ... | tail	data_start and all runs are page-aligned, so that whole
 *	     ^ data_start          ^ data_end	runs can go to the disk from where they lie
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "image/hash.h"
#include "image/internal.h"

void *image_scratch(uint64_t size)
{
	void *p = raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return raw_is_error(p) ? NULL : p;
}

void image_scratch_free(void *p, uint64_t size)
{
	if (p)
		raw_munmap(p, size);
}

static bool run_has_data(const struct image_run *r)
{
	return !(r->flags & IMAGE_RUN_EMPTY) && r->end > r->start;
}

/*
 * Read in place is anonymous memory that the CPU may read and that nobody writes to while no thread of the
 * program runs. All else is copied by the kernel, which answers with an error where a load would be a
 * signal: a page behind the end of a file (SIGBUS), a guard page. The stack that this runs on changes while
 * it is written.
 */
static bool run_is_direct(const struct image_run *r, const struct image_mapping *m, uint64_t stack)
{
	if (r->flags & (IMAGE_RUN_UNREADABLE | IMAGE_RUN_LIVE) || !(r->prot & PROT_READ))
		return false;
	if (m->kind != IMAGE_MAPPING_ANON || m->flags & IMAGE_MAPPING_WHOLE)
		return false;
	return stack < r->start || stack >= r->end;
}

/* Runs and mappings both ascend: one pass over the two. */
static int place_runs(struct image_file *f, uint64_t offset)
{
	const struct image_dump *d = f->dump;
	uint64_t stack = (uint64_t)(uintptr_t)__builtin_frame_address(0), n = 0;
	uint32_t m = 0;

	for (uint32_t i = 0; i < d->run_count; i++) {
		const struct image_run *r = &d->runs[i];

		while (m < d->mapping_count && d->mappings[m].end <= r->start)
			m++;
		if (m == d->mapping_count || r->start < d->mappings[m].start || r->end > d->mappings[m].end)
			return image_fail(f, -EINVAL, IMAGE_STEP_ASKED, r->start);
		if (!run_has_data(r))
			continue;
		f->placed[n++] = (struct image_placed){
			.start = r->start,
			.length = r->end - r->start,
			.offset = offset,
			.direct = run_is_direct(r, &d->mappings[m], stack),
		};
		offset += r->end - r->start;
	}
	return 0;
}

static int count_runs(struct image_file *f)
{
	const struct image_dump *d = f->dump;

	for (uint32_t i = 0; i < d->run_count; i++) {
		const struct image_run *r = &d->runs[i];

		if (r->start >= r->end || (r->start | r->end) % FM_PAGE_SIZE || (i && r->start < d->runs[i - 1].end))
			return image_fail(f, -EINVAL, IMAGE_STEP_ASKED, r->start);
		if (run_has_data(r)) {
			f->placed_count++;
			f->memory_total += r->end - r->start;
		}
	}
	return 0;
}

static void build_phdrs(struct image_file *f, Elf64_Phdr *p)
{
	const struct image_dump *d = f->dump;
	uint64_t offset = f->data_start;

	*p++ = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = f->notes_offset, .p_filesz = f->notes_size, .p_align = 4 };
	*p++ = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = f->data_end, .p_filesz = f->tail_size, .p_align = 4 };
	for (uint32_t i = 0; i < d->run_count; i++, p++) {
		const struct image_run *r = &d->runs[i];

		*p = (Elf64_Phdr){
			.p_type = PT_LOAD,
			.p_flags = (r->prot & PROT_READ ? PF_R : 0) | (r->prot & PROT_WRITE ? PF_W : 0) |
				   (r->prot & PROT_EXEC ? PF_X : 0) | (r->flags & IMAGE_RUN_CLEAN ? IMAGE_SEGMENT_CLEAN : 0),
			.p_offset = offset,
			.p_vaddr = r->start,
			.p_memsz = r->end - r->start,
			.p_filesz = run_has_data(r) ? r->end - r->start : 0,
			.p_align = FM_PAGE_SIZE,
		};
		offset += p->p_filesz;
	}
}

static void build_head(struct image_file *f)
{
	bool many = f->phdr_count >= PN_XNUM;
	Elf64_Ehdr e = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE },
		.e_type = ET_CORE,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(Elf64_Ehdr),
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = many ? PN_XNUM : (uint16_t)f->phdr_count,
	};

	if (many) {
		Elf64_Shdr s = { .sh_type = SHT_NULL, .sh_info = (uint32_t)f->phdr_count };

		e.e_shoff = f->notes_offset - sizeof(s);
		e.e_shentsize = sizeof(s);
		e.e_shnum = 1;
		memcpy(f->head + e.e_shoff, &s, sizeof(s));
	}
	memcpy(f->head, &e, sizeof(e));
	build_phdrs(f, (Elf64_Phdr *)(f->head + sizeof(e)));
	image_notes_build(f, f->head + f->notes_offset);
}

int image_layout(struct image_file *f)
{
	const uint64_t note_head = sizeof(Elf64_Nhdr) + sizeof(IMAGE_NOTE_OWNER);
	uint64_t shdrs;
	int r = count_runs(f);

	if (r)
		return r;
	f->phdr_count = 2 + (uint64_t)f->dump->run_count;
	shdrs = f->phdr_count >= PN_XNUM ? sizeof(Elf64_Shdr) : 0;
	f->notes_offset = sizeof(Elf64_Ehdr) + f->phdr_count * sizeof(Elf64_Phdr) + shdrs;
	f->notes_size = image_notes_build(f, NULL);
	f->data_start = ALIGN_UP(f->notes_offset + f->notes_size, (uint64_t)FM_PAGE_SIZE);
	f->data_end = f->data_start + f->memory_total;
	f->block_count = (f->memory_total + IMAGE_BLOCK_SIZE - 1) / IMAGE_BLOCK_SIZE;
	f->tail_size = note_head + sizeof(struct image_blocks) + f->block_count * sizeof(uint64_t);

	f->placed = image_scratch((f->placed_count + 1) * sizeof(*f->placed));
	f->head = image_scratch(f->data_start);
	f->tail = image_scratch(ALIGN_UP(f->tail_size, (uint64_t)FM_PAGE_SIZE));
	f->sums = image_scratch((f->block_count + 1) * sizeof(*f->sums));
	f->kinds = image_scratch(f->block_count + 1);
	if (!f->placed || !f->head || !f->tail || !f->sums || !f->kinds)
		return image_fail(f, -ENOMEM, IMAGE_STEP_CREATE, 0);
	r = place_runs(f, f->data_start);
	if (!r)
		build_head(f);
	return r;
}

void image_layout_done(struct image_file *f)
{
	image_scratch_free(f->placed, (f->placed_count + 1) * sizeof(*f->placed));
	image_scratch_free(f->head, f->data_start);
	image_scratch_free(f->tail, ALIGN_UP(f->tail_size, (uint64_t)FM_PAGE_SIZE));
	image_scratch_free(f->sums, (f->block_count + 1) * sizeof(*f->sums));
	image_scratch_free(f->kinds, f->block_count + 1);
	f->placed = NULL;
	f->sums = NULL;
	f->kinds = NULL;
	f->head = f->tail = NULL;
}

void image_seal(struct image_file *f, uint8_t ret_digest[16])
{
	uint64_t sums_size = f->block_count * sizeof(*f->sums);
	const struct image_piece pieces[] = {
		{ f->head, f->data_start },
		{ &f->blocks, sizeof(f->blocks) },
		{ f->sums, sums_size },
	};
	uint8_t digest[16];
	char *at;

	f->blocks = (struct image_blocks){
		.block_size = IMAGE_BLOCK_SIZE,
		.count = f->block_count,
		.data_start = f->data_start,
		.data_end = f->data_end,
	};
	image_hash128(pieces, 3, digest);
	memcpy(f->blocks.head_digest, digest, sizeof(digest));
	image_hash128(pieces + 1, 2, ret_digest);
	at = image_note_header(f->tail, IMAGE_NOTE_OWNER, IMAGE_NOTE_BLOCKS, (uint32_t)(sizeof(f->blocks) + sums_size));
	memcpy(at, &f->blocks, sizeof(f->blocks));
	memcpy(at + sizeof(f->blocks), f->sums, sums_size);
}
