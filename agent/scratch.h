/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for the making of an image, which is not in the image: one reservation, given out from its start, given back whole. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int scratch_begin(void); /* 0 or -ENOMEM */
void scratch_end(void);
/* Zeroed. @p (NULL, or an earlier block of @old bytes) is copied. NULL when full. */
void *scratch_grow(void *p, size_t old, size_t size);
void scratch_range(uint64_t *ret_start, uint64_t *ret_end);
