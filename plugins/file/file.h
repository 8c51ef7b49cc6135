/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this plugin share. */
#pragma once

#include <stdbool.h>

#include "fermata/plugin.h"
#include "plugins/file/file_record.h"

#define FILE_RECORD_VERSION 4
#define FILE_PATH_MAX 4096

/* file_deleted.c: the steps for a file without a name. 0 or -errno unless said otherwise. */
int file_deleted_claim(struct fermata_desc *d); /* as fd_claim */
int file_deleted_drain(struct fermata_desc *d, unsigned int round);
void file_deleted_describe(const struct fermata_desc *d, struct file_record *r); /* sets what the record says of a deleted file */
/* A description of its own of what is open as @fd, which may be for writing only. */
int file_open_own(int fd, int flags);
/* A descriptor, -errno, or FERMATA_FD_LATER. */
int file_deleted_restore(struct fermata_desc *d, const struct file_record *r);
int file_deleted_reconnect(struct fermata_desc *d, const struct file_record *r);
int file_deleted_refill(struct fermata_desc *d, const struct file_record *r);

/* file_proc.c: a file of /proc that has been read to its end; @offset: the descriptor's */
bool file_proc_is_at_end(const struct fermata_desc *d, int64_t offset);
void file_proc_read_to_end(int fd);

/* file_gone.c: what is below /proc/PID of a process that has ended. 1: it is; 0: not such a file, or it can be opened; or -errno: why it cannot. Asks nothing
 * of the kernel where @path is not below /proc. */
int file_gone_check(const struct fermata_desc *d, const char *path);
/* Something like it; a descriptor or -errno. */
int file_gone_open(const char *path, int flags);

/* file_lock.c: 0 or -errno */
int file_lock_begin(void); /* as quiesce */
int file_lock_note(const struct fermata_desc *d); /* the locks that fdinfo shows of it */
int file_lock_refill(void); /* as refill: all of them are held again */
void file_lock_forget(void);
