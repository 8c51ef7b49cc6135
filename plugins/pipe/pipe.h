/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the pipe plugin share. */
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

/* ---- pipe_content.c ---- */
struct pipe_content {
	char *bytes;
	uint32_t *sizes; /* of packets */
	uint32_t length, packets;
};
/* What is in the pipe whose read end is @from. 0 or -errno; -EOPNOTSUPP: both packets and bytes. To be freed after an error, too. */
int pipe_content_read(int from, long capacity, struct pipe_content *ret);
void pipe_content_free(const struct pipe_content *c);
/* Puts back what follows @r; @to is not used for anything else. */
int pipe_content_write(int to, const struct pipe_record *r);
