/* SPDX-License-Identifier: BSD-2-Clause */
/* An ELF file as it lies on disk: who loads it, and what it imports. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct elf_file {
	const uint8_t *at; /* the whole file, mapped */
	size_t size;
	const char *damage; /* after -EBADMSG: what is wrong */
};

/* 0, or -errno; -ENOEXEC: no ELF file at all, or one of another processor, which @ret_other names ("" if it is no ELF file). */
int elf_file_open(const char *path, struct elf_file *ret, const char **ret_other);
void elf_file_close(struct elf_file *f);
/* The loader that it asks for, "" if it asks for none. 0, or -EBADMSG. */
int elf_file_loader(struct elf_file *f, char *ret, size_t size);
/* Calls @fn with the name of each symbol that another file has to define. 0, -ENODATA: it has no section headers, or -EBADMSG. */
int elf_file_imports(struct elf_file *f, void (*fn)(void *arg, const char *name), void *arg);
