/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the image holds of one end of a pipe. Little-endian. In the maker's record follow
 *
 *   uint32_t	the size of each packet, as often as there are some
 *   bytes	what is in the pipe
 */
#pragma once

#include <stdint.h>

#define PIPE_RECORD_VERSION 3

#define PIPE_DELETED 1u /* a named pipe whose name is gone */
#define PIPE_WAITS 2u	/* a reading end of a named pipe that nobody has opened for writing since: no end of file yet (fifo(7)) */

struct pipe_record {
	uint32_t version; /* PIPE_RECORD_VERSION */
	uint32_t access;  /* O_RDONLY, O_WRONLY or O_RDWR */
	uint32_t maker_pid; /* who re-creates the pipe: the lowest (pid, fd) that holds an end */
	int32_t maker_fd;
	uint32_t capacity; /* F_GETPIPE_SZ */
	uint32_t length;   /* bytes in the pipe */
	uint32_t flags;
	uint32_t packets; /* that these are; 0: no packets */
};
_Static_assert(sizeof(struct pipe_record) == 32, "pipe_record");
