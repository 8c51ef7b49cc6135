/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plan: all that the restorer needs to rebuild one process, a flat file (memfd) of fixed-width structs. `fermata restart`
 * makes it from an image; the restorer trusts it.
 *
 *   | struct plan | plan_mapping[] | plan_load[] | image_thread[] | image_sigaction[64] |
 */
#pragma once

#include <stdint.h>

#include "image/record.h"

#define PLAN_MAGIC 0x314e414c50544d46u /* "FMTPLAN1" */

struct plan {
	uint64_t magic;
	uint64_t size; /* bytes of the whole plan */
	uint64_t hole_start, hole_end; /* free in the image's layout: the restorer moves itself there */
	uint32_t mapping_count, load_count, thread_count, reserved;
	uint64_t mappings, loads, threads, signals; /* offsets from the plan's start */
	struct image_process process;
	struct image_restart restart; /* copied to process.restart_info */
	uint32_t log_fd, eager_threads;
};

struct plan_mapping {
	uint64_t start, end;
	uint32_t kind, prot; /* enum image_mapping_kind; the final PROT_* */
	uint32_t mmap_flags; /* MAP_* for the kernel, MAP_FIXED_NOREPLACE excluded */
	int32_t fd;	     /* open in the restorer for FILE and SHARED kinds, else -1 */
	uint64_t offset;
};

/* Bytes of the image that go to memory; holes read as zeros. */
struct plan_load {
	uint64_t address, length, file_offset;
};
