/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a program or library is the one that a process mapped though its file has another time: a copy without times, the same package on another machine. The linker's
 * build id tells, a note that lies in the first page as a rule; an image has that page of all that are mapped. Owns nothing.
 */
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/restart.h"

struct page {
	_Alignas(16) unsigned char bytes[4096];
};

struct build_id {
	const unsigned char *bytes;
	uint32_t length; /* 0: there is none */
};

static bool lies_within(uint64_t offset, uint64_t length)
{
	return offset <= sizeof(struct page) && length <= sizeof(struct page) - offset;
}

/* @notes: of @length bytes, padded to 4 (ELF specification, note section). */
static struct build_id find_in(const unsigned char *notes, uint64_t length)
{
	Elf64_Nhdr n;

	while (length >= sizeof(n)) {
		uint64_t name, whole;

		memcpy(&n, notes, sizeof(n));
		name = ALIGN_UP((uint64_t)n.n_namesz, 4);
		whole = sizeof(n) + name + ALIGN_UP((uint64_t)n.n_descsz, 4);
		if (whole > length)
			break;
		if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == sizeof(ELF_NOTE_GNU) && !memcmp(notes + sizeof(n), ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)))
			return (struct build_id){ notes + sizeof(n) + name, n.n_descsz };
		notes += whole;
		length -= whole;
	}
	return (struct build_id){ 0 };
}

static struct build_id build_id_of(const struct page *p)
{
	struct build_id id = { 0 };
	Elf64_Ehdr e;
	Elf64_Phdr h;

	memcpy(&e, p->bytes, sizeof(e));
	if (memcmp(e.e_ident, ELFMAG, SELFMAG) || e.e_phentsize != sizeof(h) || !lies_within(e.e_phoff, (uint64_t)e.e_phnum * sizeof(h)))
		return id;
	for (unsigned int i = 0; i < e.e_phnum && !id.length; i++) {
		memcpy(&h, p->bytes + e.e_phoff + i * sizeof(h), sizeof(h));
		if (h.p_type == PT_NOTE && lies_within(h.p_offset, h.p_filesz))
			id = find_in(p->bytes + h.p_offset, h.p_filesz);
	}
	return id;
}

static bool read_saved(const struct restart_process *p, uint64_t address, struct page *ret)
{
	size_t n;
	const Elf64_Phdr *s = image_get_segments(p->image, &n);

	for (size_t i = 0; i < n; i++)
		if (address >= s[i].p_vaddr && address + sizeof(*ret) <= s[i].p_vaddr + s[i].p_filesz)
			return pread(image_fd(p->image), ret, sizeof(*ret), (off_t)(s[i].p_offset + (address - s[i].p_vaddr))) == sizeof(*ret);
	return false;
}

static bool read_file(const char *path, struct page *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool whole = fd >= 0 && pread(fd, ret, sizeof(*ret), 0) == sizeof(*ret);

	if (fd >= 0)
		close(fd);
	return whole;
}

/* The mapping of the file's first page. NULL: none has it. */
static const struct image_mapping *find_head(const struct restart_process *p, const char *path)
{
	size_t n;
	const struct image_mapping *m = image_get_mappings(p->image, &n);

	for (size_t i = 0; i < n; i++)
		if (m[i].kind == IMAGE_MAPPING_FILE && !m[i].offset && !strcmp(image_mapping_path(p->image, &m[i]), path))
			return &m[i];
	return NULL;
}

bool restart_same_build(const struct restart_process *p, const char *path)
{
	const struct image_mapping *head = find_head(p, path);
	struct build_id was, is;
	struct page then, now;

	if (!head || !read_saved(p, head->start, &then) || !read_file(path, &now))
		return false;
	was = build_id_of(&then);
	is = build_id_of(&now);
	return was.length && was.length == is.length && !memcmp(was.bytes, is.bytes, is.length);
}
