/* SPDX-License-Identifier: BSD-2-Clause */
/* What the fuzzers share; driver.c runs them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(bool holds)
{
	if (!holds)
		abort();
}

/* Reads all of it, so that a sanitizer sees what is not there. */
static inline void fuzz_touch(const void *p, size_t size)
{
	const volatile uint8_t *b = p;

	for (size_t i = 0; i < size; i++)
		(void)b[i];
}

/* A copy of exact size, to be freed: a read behind the end is one behind the allocation. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t size)
{
	uint8_t *p = malloc(size ? size : 1);

	fuzz_require(p != NULL);
	memcpy(p, data, size);
	return p;
}
