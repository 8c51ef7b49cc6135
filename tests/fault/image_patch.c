/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes an image that is in order but not for this host, or not its memory, or of an older agent: changes a field, then makes the head's digest right again (doc/image-format.md).
 * Usage: image_patch IMAGE version|cpu|sum|agent. Prints the digest of the image before and after, as the manifest has them.
 */
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "image/record.h"

struct file {
	unsigned char *bytes;
	size_t size;
};

_Noreturn static void fail(const char *what)
{
	fprintf(stderr, "image_patch: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct file file_read(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct file file;

	if (!f || fseek(f, 0, SEEK_END))
		fail(path);
	file.size = (size_t)ftell(f);
	file.bytes = malloc(file.size + 1);
	rewind(f);
	if (!file.bytes || fread(file.bytes, 1, file.size, f) != file.size)
		fail(path);
	fclose(f);
	return file;
}

static void file_write(const char *path, const struct file *file)
{
	FILE *f = fopen(path, "r+b");

	if (!f || fwrite(file->bytes, 1, file->size, f) != file->size || fclose(f))
		fail(path);
}

/* The descriptor of the first note of a type, in the notes that program header @index names. */
static void *note_find(const struct file *file, int index, uint32_t type)
{
	const Elf64_Ehdr *header = (void *)file->bytes;
	const Elf64_Phdr *notes = (const Elf64_Phdr *)(file->bytes + header->e_phoff) + index;
	size_t at = notes->p_offset, end = notes->p_offset + notes->p_filesz;

	while (at + sizeof(Elf64_Nhdr) <= end) {
		Elf64_Nhdr *note = (void *)(file->bytes + at);
		size_t data = at + sizeof(*note) + (note->n_namesz + 3) / 4 * 4;

		if (note->n_type == type && !strcmp((char *)(note + 1), IMAGE_NOTE_OWNER))
			return file->bytes + data;
		at = data + (note->n_descsz + 3) / 4 * 4;
	}
	errno = ENOENT;
	fail("note");
}

/* The digest of the image; @canonical is 16 bytes. */
static void image_digest(const struct image_blocks *blocks, unsigned char *canonical)
{
	size_t size = sizeof(*blocks) + blocks->count * sizeof(uint64_t);

	XXH128_canonicalFromHash((XXH128_canonical_t *)canonical, XXH3_128bits(blocks, size));
}

static void digest_print(const struct image_blocks *blocks, char end)
{
	unsigned char digest[16];

	image_digest(blocks, digest);
	for (int i = 0; i < 16; i++)
		printf("%02x", digest[i]);
	putchar(end);
}

static void head_sign(const struct file *file, struct image_blocks *blocks)
{
	XXH3_state_t *state = XXH3_createState();

	memset(blocks->head_digest, 0, sizeof(blocks->head_digest));
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, file->bytes, blocks->data_start);
	XXH3_128bits_update(state, blocks, sizeof(*blocks) + blocks->count * sizeof(uint64_t));
	XXH128_canonicalFromHash((XXH128_canonical_t *)blocks->head_digest, XXH3_128bits_digest(state));
	XXH3_freeState(state);
}

int main(int argc, char **argv)
{
	struct image_blocks *blocks;
	struct file file;

	if (argc != 3)
		return 2;
	file = file_read(argv[1]);
	blocks = note_find(&file, 1, IMAGE_NOTE_BLOCKS);
	digest_print(blocks, ' ');
	if (!strcmp(argv[2], "version")) {
		((struct image_version *)note_find(&file, 0, IMAGE_NOTE_VERSION))->version = IMAGE_VERSION + 1;
	} else if (!strcmp(argv[2], "sum")) {
		*(uint64_t *)(blocks + 1) ^= 1;
	} else if (!strcmp(argv[2], "agent")) {
		((struct image_process *)note_find(&file, 0, IMAGE_NOTE_PROCESS))->restart_info_size = offsetof(struct image_restart, path_map);
	} else {
		struct image_cpu *cpu = note_find(&file, 0, IMAGE_NOTE_CPU);

		cpu->leaf7_ebx = cpu->leaf7_ecx = cpu->leaf7_edx = UINT32_MAX; /* no CPU has all of these */
	}
	head_sign(&file, blocks);
	digest_print(blocks, '\n');
	file_write(argv[1], &file);
	return 0;
}
