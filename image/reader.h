/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads images, with full libc: for commands and tests. Nothing in a file is trusted. */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/record.h"

struct image;

enum image_fault {
	IMAGE_OK = 0,
	IMAGE_MISSING, /* no such file, or it cannot be read */
	IMAGE_FOREIGN, /* not an image of ours */
	IMAGE_NEWER,   /* of a version that this program does not know */
	IMAGE_TRUNCATED,
	IMAGE_DAMAGED, /* a checksum, or a structure out of its bounds */
};

struct image_error {
	enum image_fault fault;
	uint64_t block;	 /* DAMAGED: number of the first bad block, or UINT64_MAX */
	char text[512]; /* one sentence that names the file and what is wrong */
};

struct image_note_view {
	uint32_t type;
	uint32_t length;
	const void *data; /* aligned to 8 */
};

/*
 * Maps the file and checks all of its structure and the head digest, not the blocks. 0 or -errno and
 * @ret_error.
 */
int image_open(const char *path, struct image **ret, struct image_error *ret_error);
/* The same of a descriptor, which it takes also on failure; @name stands in messages. */
int image_open_fd(int fd, const char *name, struct image **ret, struct image_error *ret_error);
struct image *image_free(struct image *i);
int image_fd(const struct image *i);
/* Checks every block with @threads threads. */
int image_verify(struct image *i, unsigned int threads, struct image_error *ret_error);
/* The same; @progress is called now and then from the calling thread, with bytes. */
int image_verify_progress(struct image *i, unsigned int threads, void (*progress)(void *arg, uint64_t done, uint64_t total),
			  void *arg, struct image_error *ret_error);
/* XXH3-128 over struct image_blocks and the checksums, so over the whole file: what the manifest names. */
void image_digest(const struct image *i, uint8_t ret[16]);

const char *image_fault_name(enum image_fault fault); /* "damaged" */
const struct image_version *image_get_version(const struct image *i);
const struct image_blocks *image_get_blocks(const struct image *i);
const uint64_t *image_get_sums(const struct image *i); /* of its blocks */
uint64_t image_file_size(const struct image *i);

const struct image_process *image_get_process(const struct image *i);
const struct image_thread *image_get_threads(const struct image *i, size_t *ret_count);
/* Its children that have ended and were not waited for. @ret_groups: of each, or NULL, not known (and where nobody asks). */
const struct image_zombie *image_get_zombies(const struct image *i, size_t *ret_count, const struct image_group **ret_groups);
const struct image_sysv *image_get_sysv(const struct image *i, size_t *ret_count);
/* The contents of files: those that this process has saved, summed or only read. */
size_t image_count_contents(const struct image *i);
const struct image_content *image_get_content(const struct image *i, size_t index);
const char *image_content_path(const struct image *i, const struct image_content *c);
const char *image_content_name(const struct image *i, const struct image_content *c); /* of the file in the checkpoint; "" */
const struct image_mapping *image_get_mappings(const struct image *i, size_t *ret_count);
const char *image_mapping_path(const struct image *i, const struct image_mapping *m); /* "" if none */
/* What @mapping (IMAGE_MAPPING_WHOLE) maps is not there, or not what it was: from now on it is memory of its own, of the pages in @i. */
void image_take_pages(struct image *i, const struct image_mapping *mapping);
const struct image_sigaction *image_get_signals(const struct image *i);
const struct image_cpu *image_get_cpu(const struct image *i);
const struct image_host *image_get_host(const struct image *i);
const Elf64_Phdr *image_get_segments(const struct image *i, size_t *ret_count); /* PT_LOADs only */
/*
 * From now on every path of @i is told as what @map makes of it: of its program, its directory, mapped files and contents of files. The notes of resources stay as they
 * are. Once an image. 0, or -errno and @ret_error.
 */
struct path_map;
int image_map_paths(struct image *i, const struct path_map *map, struct image_error *ret_error);
/* The vendor notes one by one: true and the next, or false. Begin with *@cursor = 0. */
bool image_next_note(const struct image *i, size_t *cursor, struct image_note_view *ret);

/* Names of the CPU features that @image needs and @host lacks, comma-separated; the number of them. */
int image_cpu_missing(const struct image_cpu *image, const struct image_cpu *host, char *ret, size_t size);
