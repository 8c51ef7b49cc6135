/* SPDX-License-Identifier: BSD-2-Clause */
/* The contents of files that a checkpoint holds (doc/image-format.md): copied, cloned, summed. Without libc state. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_CONTENT_BLOCK (1u << 20)
#define IMAGE_CONTENT_CLONE_SUMMED (256u << 20) /* a clone of more bytes gets no sum at a checkpoint */

struct image_content_work {
	void *buffer; /* of IMAGE_CONTENT_BLOCK bytes */
	/* Called after each block with how far it has come; may be NULL. Non-zero: give up with that -errno. */
	int (*progress)(void *arg, uint64_t at);
	void *arg;
	/* Makes zeros of what is not to be taken of the @n bytes at @at; NULL: all is. */
	void (*mask)(void *arg, uint64_t at, void *data, size_t n);
	bool dense; /* holes are not looked for: that would move the offset of @from, which is not ours */
};

/* Sums the first @size bytes of @from, and writes them to @to, an empty file, unless it is -1: pages of zeros become holes. @ret_bytes: of data.
 * 0 or -errno; -ENODATA: @from is shorter. *@ret_reading: the error is one of reading. */
int image_content_copy(const struct image_content_work *w, int from, int to, uint64_t size, uint64_t *ret_sum, uint64_t *ret_bytes,
		       bool *ret_reading);
/* Makes @to, an empty file, share the content of @from: 0, or -errno where the file system cannot. */
int image_content_clone(int from, int to);
