/* SPDX-License-Identifier: BSD-2-Clause */
/* What a file is called that is not found any more under the name that it was opened or bound by. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* The first name in the directory of @path that leads to what @is says is it: in @buf of @size bytes, which may be that of @path, with the directory as in @path. @st: the file's own, no link's target. False: there is none, or it does not fit. */
bool other_name(const char *path, bool (*is)(const struct stat *st, const void *arg), const void *arg, char *buf, size_t size);
