/* SPDX-License-Identifier: BSD-2-Clause */
/* Between pipe.c and pipe_make.c. */
#pragma once

#include <string.h>

#include "fermata/plugin.h"
#include "plugins/pipe/pipe_record.h"

static inline int pipe_is_named(const struct fermata_desc *d)
{
	return strncmp(d->link, "pipe:[", 6) != 0;
}

/* An end of the pipe that process @pid has at @fd, or -errno. @flags: PIPE_WAITS. */
int pipe_open_end(uint32_t pid, int fd, int access, uint32_t flags);
/* RECREATE, by the maker: the end that it had, or -errno, said. */
int pipe_make(const struct fermata_desc *d, const struct pipe_record *record);
