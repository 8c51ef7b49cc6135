/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of one end of a pipe. Little-endian. */
#pragma once

#include <stdint.h>

struct pipe_record {
	uint32_t version; /* 1 */
	uint32_t access;  /* O_RDONLY, O_WRONLY or O_RDWR */
	uint64_t ino;	  /* tells the pipes of the job apart */
	uint32_t maker_pid; /* who re-creates the pipe: the lowest (pid, fd) that holds an end */
	int32_t maker_fd;
	uint32_t capacity; /* F_GETPIPE_SZ */
	uint32_t length;   /* bytes in the pipe, which follow this struct; only in the maker's record */
};
_Static_assert(sizeof(struct pipe_record) == 32, "pipe_record");
