/* SPDX-License-Identifier: BSD-2-Clause */
/* A small dump to be written by tests of the image: this process, with memory that the test chooses. */
#pragma once

#include "image/reader.h"
#include "image/writer.h"

#define SAMPLE_RUNS 64

struct sample {
	struct image_process process;
	struct image_thread threads[2];
	struct image_mapping mappings[SAMPLE_RUNS];
	struct image_run runs[SAMPLE_RUNS];
	struct image_sigaction signals[64];
	struct image_cpu cpu;
	struct image_host host;
	struct {
		struct image_resource head;
		char record[8];
		struct image_fd fds[2];
	} resource;
	struct image_note_data notes[5];
	struct image_dump dump;
};

void sample_init(struct sample *s);
/* Adds a mapping and one run that is all of it. Addresses must ascend. Returns the run, for changes. */
struct image_run *sample_add(struct sample *s, void *at, uint64_t length, uint32_t kind, uint32_t flags);
/* A new directory below $TMPDIR or /tmp, removed at exit with the files in it. */
const char *sample_directory(void);
