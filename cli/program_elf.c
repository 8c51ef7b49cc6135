/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads ELF files of programs and libraries: strangers' files, perhaps cut or damaged. Owns the mapping of a file. Whatever is read is copied
 * out by elf_get() or found by elf_text(), which look first whether it lies in the file.
 */
#include "cli/program_elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int elf_damaged(struct elf_file *f, const char *what)
{
	f->damage = what;
	return -EBADMSG;
}

static int elf_get(const struct elf_file *f, uint64_t offset, void *ret, size_t len)
{
	if (len > f->size || offset > f->size - len)
		return -EBADMSG;
	memcpy(ret, f->at + offset, len);
	return 0;
}

/* The string at @offset of the @len bytes at @from: NULL if these, or its end, are not there. */
static const char *elf_text(const struct elf_file *f, uint64_t from, uint64_t len, uint64_t offset)
{
	if (from > f->size || len > f->size - from || offset >= len || !memchr(f->at + from + offset, 0, len - offset))
		return NULL;
	return (const char *)f->at + from + offset;
}

static const char *elf_other(const uint8_t *ident, unsigned int machine)
{
	if (machine == EM_386 || (machine == EM_X86_64 && ident[EI_CLASS] == ELFCLASS32))
		return "32-bit x86";
	if (machine == EM_AARCH64)
		return "64-bit ARM";
	return machine == EM_X86_64 && ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == ELFDATA2LSB ? NULL : "another processor";
}

static int elf_check_head(struct elf_file *f, const char **ret_other)
{
	Elf64_Ehdr e = { 0 };

	if (f->size < SELFMAG || memcmp(f->at, ELFMAG, SELFMAG))
		return -ENOEXEC;
	memcpy(&e, f->at, f->size < sizeof(e) ? f->size : sizeof(e));
	if (f->size < EI_NIDENT + 4) /* e_type, e_machine: in each class at the same place */
		return elf_damaged(f, "it ends within its header");
	*ret_other = elf_other(e.e_ident, e.e_machine);
	if (*ret_other)
		return -ENOEXEC;
	*ret_other = "";
	return f->size < sizeof(e) ? elf_damaged(f, "it ends within its header") : 0;
}

int elf_file_open(const char *path, struct elf_file *ret, const char **ret_other)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
	struct stat st;
	void *at;

	*ret = (struct elf_file){ 0 };
	*ret_other = "";
	if (fd < 0)
		return -errno;
	r = fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) && st.st_size > 0 ? 0 : -ENOEXEC;
	at = r ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (!r && at == MAP_FAILED)
		r = -errno;
	close(fd);
	if (r)
		return r;
	ret->at = at;
	ret->size = (size_t)st.st_size;
	return elf_check_head(ret, ret_other);
}

void elf_file_close(struct elf_file *f)
{
	if (f->at)
		munmap((void *)f->at, f->size);
	f->at = NULL;
}

int elf_file_loader(struct elf_file *f, char *ret, size_t size)
{
	const char *text;
	Elf64_Phdr p;
	Elf64_Ehdr e;

	ret[0] = 0;
	elf_get(f, 0, &e, sizeof(e)); /* it is there: open has looked */
	for (unsigned int i = 0; i < e.e_phnum; i++) {
		if (e.e_phentsize != sizeof(p) || elf_get(f, e.e_phoff + (uint64_t)i * sizeof(p), &p, sizeof(p)) < 0)
			return elf_damaged(f, "its program headers lie outside of it");
		if (p.p_type != PT_INTERP)
			continue;
		text = elf_text(f, p.p_offset, p.p_filesz, 0);
		if (!text || strlen(text) >= size)
			return elf_damaged(f, "its loader's name lies outside of it");
		strcpy(ret, text);
	}
	return 0;
}

static int elf_section(struct elf_file *f, const Elf64_Ehdr *e, unsigned int i, Elf64_Shdr *ret)
{
	if (e->e_shentsize != sizeof(*ret) || i >= e->e_shnum || elf_get(f, e->e_shoff + (uint64_t)i * sizeof(*ret), ret, sizeof(*ret)) < 0)
		return elf_damaged(f, "its section headers lie outside of it");
	return 0;
}

static int elf_symbols(struct elf_file *f, const Elf64_Shdr *symbols, const Elf64_Shdr *names, void (*fn)(void *arg, const char *name),
		       void *arg)
{
	const char *name;
	Elf64_Sym s;

	for (uint64_t at = 0; at + sizeof(s) <= symbols->sh_size; at += sizeof(s)) {
		if (symbols->sh_offset > f->size || elf_get(f, symbols->sh_offset + at, &s, sizeof(s)) < 0)
			return elf_damaged(f, "its table of symbols lies outside of it");
		if (s.st_shndx != SHN_UNDEF || !s.st_name)
			continue;
		name = elf_text(f, names->sh_offset, names->sh_size, s.st_name);
		if (!name)
			return elf_damaged(f, "the name of a symbol lies outside of it");
		fn(arg, name);
	}
	return 0;
}

int elf_file_imports(struct elf_file *f, void (*fn)(void *arg, const char *name), void *arg)
{
	Elf64_Shdr s, names;
	Elf64_Ehdr e;
	int r = 0;

	elf_get(f, 0, &e, sizeof(e));
	if (!e.e_shoff || !e.e_shnum)
		return -ENODATA;
	for (unsigned int i = 0; i < e.e_shnum && !r; i++) {
		r = elf_section(f, &e, i, &s);
		if (r || s.sh_type != SHT_DYNSYM)
			continue;
		r = elf_section(f, &e, s.sh_link, &names);
		if (!r)
			r = elf_symbols(f, &s, &names, fn, arg);
	}
	return r;
}
