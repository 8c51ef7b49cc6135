/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of an open file: regular file, directory, a character device without state, or whatever is open as a place only (O_PATH). The path follows. Little-endian. */
#pragma once

#include <stdint.h>

/* What a file of /proc has besides: of a process that had ended (file_gone.c); read to its end, and so it is whatever it has to say after a restart. */
enum file_proc { FILE_PROC_NOTHING = 0, FILE_PROC_GONE = 1, FILE_PROC_AT_END = 2 };

struct file_record {
	uint32_t version; /* 4 */
	uint32_t mode;	  /* st_mode at the checkpoint: type and permissions */
	uint32_t flags;	  /* access mode and status flags that it is opened with */
	uint32_t path_length; /* bytes that follow this struct, the NUL counted */
	int64_t offset;	  /* -1: has none (O_PATH) */
	uint64_t size;	  /* regular files: at the checkpoint */
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	uint32_t shared; /* 1: a deleted file that is mapped shared: the memory is its content, and comes back first */
	uint64_t dev, ino; /* for inspection: a file may be restored as a copy; a deleted one's content is found by these */
	/* Deleted files only, else 0: who makes it again, the lowest (pid, fd) of the job that has it open. */
	uint32_t maker_pid;
	int32_t maker_fd;
	uint32_t seals; /* F_GET_SEALS and bit 31: of a file that can have seals; in the maker's record only */
	uint32_t proc; /* enum file_proc */
};
_Static_assert(sizeof(struct file_record) == 80, "file_record");
