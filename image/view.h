/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the image reader share. */
#pragma once

#include <sys/stat.h>

#include "base/macro.h"
#include "image/reader.h"

struct image {
	int fd;
	char *name;
	uint64_t size;
	const uint8_t *head; /* [0, head_size) of the file, mapped read-only */
	uint64_t head_size;  /* the notes' end at first, then data_start */

	const Elf64_Phdr *phdrs; /* in the head */
	uint64_t phdr_count;
	uint64_t notes_offset, notes_end;
	struct image_blocks blocks;
	uint64_t *sums;
	uint8_t digest[16];

	/* Vendor notes, copied so that they are aligned. */
	uint64_t *note_data;
	struct image_note_view *notes;
	size_t note_count;

	struct image_version version;
	struct image_process process;
	struct image_thread *threads;
	size_t thread_count;
	struct image_mapping *mappings;
	size_t mapping_count;
	const char *paths;
	char *moved_paths; /* NULL: @paths lies in a note */
	uint64_t paths_length;
	struct image_sigaction signals[64];
	const struct image_sysv *sysv;
	size_t sysv_count;
	uint8_t *contents; /* entries of content_size bytes, in the copy of the note */
	size_t content_count, content_size;
	const char *content_texts;
	char *moved_texts; /* NULL: @content_texts lies in a note */
	uint64_t content_texts_length;
	struct image_cpu cpu;
	struct image_host host;
	unsigned int seen; /* bit T for the note of type IMAGE_NOTE_VERSION + T */
};

/* Fills in @e: "NAME: text". Returns -errno that goes with @fault. */
int image_say(const struct image *i, struct image_error *e, enum image_fault fault, const char *fmt, ...) PRINTF(4, 5);

/* reader_notes.c: copies and checks the vendor notes. */
int image_read_notes(struct image *i, struct image_error *e);
/* reader_sysv.c */
bool image_read_sysv(struct image *i, const struct image_note_view *n);
bool image_sysv_agrees(const struct image *i); /* the mappings with the segments */
/* reader_contents.c */
bool image_read_contents(struct image *i, const struct image_note_view *n);
/* Steps over the notes of [at, end): false at the end; *ret_bad when one leaves its bounds. */
struct image_raw_note {
	const char *owner;
	uint32_t owner_length, type, length;
	const uint8_t *data;
};
bool image_raw_note_next(const uint8_t *base, uint64_t end, uint64_t *at, struct image_raw_note *ret, bool *ret_bad);
bool image_raw_note_is_ours(const struct image_raw_note *n);
