/* SPDX-License-Identifier: BSD-2-Clause */
/* What a file is called that is open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* @path leads to the file of @st, itself no link. */
bool path_leads_to(const char *path, const struct stat *st);

/*
 * Its path as the kernel shows it, in @path of @size bytes, NUL-ended; the length, or a negative errno. Where the kernel says that the name is deleted, but the file, whose state is @st, has one still, that one, if the
 * directory has it: it was linked to, and the first name removed, or it had none at first (O_TMPFILE). Below /proc/PID/net the kernel makes a new entry at each look-up, ours too, and calls what
 * was opened by the one before deleted: there the path without the word is it.
 */
long open_path(int fd, const struct stat *st, char *path, size_t size);
