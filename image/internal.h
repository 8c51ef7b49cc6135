/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the image writer share. */
#pragma once

#include <elf.h>
#include <stdbool.h>

#include "base/macro.h"
#include "image/writer.h"

#define IMAGE_BLOCK_SIZE (1u << 20)
#define IMAGE_WRITERS_MAX 8u
#define IMAGE_HOLE_PAGES 16u /* zero pages that are worth a hole */

/* A run with bytes in the file. */
struct image_placed {
	uint64_t start, length, offset; /* memory, bytes, file */
	bool direct; /* the memory can be read in place, and stands still */
};

enum image_step { IMAGE_STEP_CREATE = 1, IMAGE_STEP_MEMORY, IMAGE_STEP_WRITE, IMAGE_STEP_SYNC, IMAGE_STEP_ASKED };

/* What is known of a block in place: who sums one has looked at its pages, mostly before it is its turn to be written. */
enum block_kind {
	BLOCK_UNSEEN,
	BLOCK_EMPTY, /* nothing but zeros */
	BLOCK_FULL,  /* no zeros that are worth a hole */
	BLOCK_MIXED,
};

struct image_file {
	const struct image_dump *dump;
	int fd, mem_fd; /* mem_fd: /proc/self/mem, or -errno */
	_Atomic int direct; /* O_DIRECT is on */
	uint64_t space;	    /* bytes that the file system had free */

	/* layout */
	struct image_placed *placed;
	uint64_t placed_count, phdr_count, memory_total; /* bytes of the runs */
	uint64_t notes_offset, notes_size;
	uint64_t data_start, data_end, block_count;
	char *head; /* [0, data_start) */
	char *tail; /* padded with zeros to whole pages */
	uint64_t tail_size;
	struct image_blocks blocks;
	uint64_t *sums; /* block_count of them */
	_Atomic uint8_t *kinds; /* as many enum block_kind */

	/* shared by the writing threads */
	_Atomic uint64_t next_write, next_sum, memory_done, memory_written;
	_Atomic int error;	/* the first one, -errno */
	enum image_step error_step; /* of the first one, also its address */
	uint64_t error_address;
};

void *image_scratch(uint64_t size); /* zeroed pages of our own; NULL */
void image_scratch_free(void *p, uint64_t size);

/* layout.c: fills in all under "layout". */
int image_layout(struct image_file *f);
void image_layout_done(struct image_file *f);
/* Once the sums are known: computes the digests and builds the tail. */
void image_seal(struct image_file *f, uint8_t ret_digest[16]);

/* notes.c: writes the head notes to @at, or counts only when it is NULL; the bytes. */
uint64_t image_notes_build(const struct image_file *f, char *at);
char *image_note_header(char *at, const char *owner, uint32_t type, uint32_t length);

/* data.c */
int image_data_write(struct image_file *f);

/* transfer.c */
int image_fail(struct image_file *f, int error, enum image_step step, uint64_t address);
/* Copies memory that may be unreadable; 0 or -errno, with the bytes done. */
int image_memory_copy(const struct image_file *f, void *to, uint64_t address, uint64_t length, uint64_t *ret_done);
int image_pwrite(struct image_file *f, const void *data, uint64_t length, uint64_t offset);
/* Bytes of the zero pages that @data begins with. */
uint64_t image_zero_length(const char *data, uint64_t length);
