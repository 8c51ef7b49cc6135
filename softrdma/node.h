/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that programs look for where an RDMA device is. */
#pragma once

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"

/* After the true stat has found nothing: 0 and *ret, or -ENOENT. */
int softrdma_node_stat(const char *path, struct stat *ret);

/* access(2) of such a file: 0 or -EACCES. */
static inline int softrdma_node_access(const struct stat *st, int mode)
{
	return mode & X_OK && !S_ISDIR(st->st_mode) ? -EACCES : mode & W_OK && S_ISDIR(st->st_mode) ? -EACCES : 0;
}
