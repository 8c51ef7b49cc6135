/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects that are mapped, by what /proc/self/maps says of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether @path is on a file system that keeps its files in memory only; then, log2 of the size of its huge pages, 0: it has ordinary ones. */
bool object_in_memory(const char *path, uint32_t *ret_page_shift);
/* The same of a deleted file, or what has no name: what nobody has touched of it is zeros; of a deleted file on a disk that is what it holds. */
bool object_is_memory(const char *path, uint64_t dev, uint32_t *ret_page_shift);
/* Of the kernel's own memory: System V segments, memfds, anonymous mappings. */
uint32_t object_page_shift(uint64_t dev);
bool object_is_anonymous_huge(const char *path);
/* The name that file @ino of @dev still has in the directory of @path, which is not its name any more ("NAME (deleted)"), in @buf of @size bytes. False: it has none there. */
bool object_other_name(const char *path, uint64_t dev, uint64_t ino, char *buf, size_t size);
