/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes one process's image from inside that process, without libc state: raw system calls and its caller's
 * memory only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "image/record.h"

/*
 * A run of memory to be saved. Runs are page-aligned, ascending, do not overlap and lie within one mapping
 * each.
 */
struct image_run {
	uint64_t start, end;
	uint32_t prot; /* PROT_* of the mapping, for the program header */
	uint32_t flags;
};
enum {
	IMAGE_RUN_DATA = 0,   /* save the bytes; all-zero pages become holes */
	IMAGE_RUN_EMPTY = 1,  /* a program header only: nothing was touched, or the file has it (p_filesz 0) */
	IMAGE_RUN_UNREADABLE = 2, /* PROT_NONE or write-only: read it through /proc/self/mem */
	IMAGE_RUN_LIVE = 4, /* may change while it is written (the caller's own state): a copy is summed and written */
	IMAGE_RUN_CLEAN = 8, /* of a file, which has the same: IMAGE_SEGMENT_CLEAN */
};

struct image_range {
	uint64_t start, end;
};

struct image_note_data {
	uint32_t type; /* enum image_note; NT_PRSTATUS and its kin are made by the writer */
	uint32_t length;
	const void *data;
};

struct image_dump {
	const struct image_process *process;
	const struct image_thread *threads; /* process->thread_count; the interrupted leader first, for debuggers */
	const struct image_mapping *mappings;
	uint32_t mapping_count;
	uint32_t paths_length;
	const char *paths;
	const struct image_run *runs;
	uint32_t run_count;
	uint32_t note_count;
	const struct image_note_data *notes; /* further vendor notes */
	uint32_t writers; /* threads to write and sum with; 1 to 8 */
	/* Called now and then from one writing thread; may be NULL. Non-zero: give up with that -errno. */
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *progress_arg;
	/* Memory that changes while the image is written, wherever it lies: what @progress writes to. */
	const struct image_range *live;
	uint32_t live_count;
	/* NULL, or for each thread its 512-byte FXSAVE area or NULL: for debuggers. */
	const void *const *fxsave;
};

struct image_written {
	uint64_t bytes;	    /* of memory, holes left out */
	uint64_t file_size;
	uint8_t digest[16]; /* XXH3-128 over struct image_blocks and the checksums: stands for the whole file */
};

/*
 * @dump->notes must hold SIGNALS, CPU and HOST. The stack that this is called on may lie in a run; other
 * memory that changes meanwhile must be in @dump->live or in runs marked LIVE. Mappings made meanwhile are
 * gone on return.
 *
 * Writes and syncs @name in the directory @dirfd, mode 0600; it must not exist. 0, or -errno after removing
 * it. @ret_text gets the cause in words on error.
 */
int image_write(int dirfd, const char *name, const struct image_dump *dump, struct image_written *ret, char *ret_text,
		size_t text_size);

/* Fills in @ret for the CPU that this runs on. */
void image_cpu_probe(struct image_cpu *ret);
/* Bytes of all states that this system has switched on, in the standard format of XSAVE; 0: none. Alone, as a processor in a guest takes microseconds for each answer. */
uint32_t image_cpu_xsave_size(void);
