/* SPDX-License-Identifier: BSD-2-Clause */
/* What restart_files*.c share: the files whose contents a restart holds against the checkpoint, or puts back. */
#pragma once

#include <sys/stat.h>

#include "cli/restart.h"
#include "image/content.h"

enum restart_file_state {
	RESTART_FILE_SAME,
	RESTART_FILE_DIFFERS, /* also: cannot be read */
	RESTART_FILE_MISSING,
	RESTART_FILE_LEFT, /* differs, and is left as it is: our own output */
};

struct restart_file {
	const struct image *image;
	const struct image_content *content;
	char path[PATH_MAX]; /* where it really is, or was */
	enum restart_file_state state;
	uint64_t size, dev, ino; /* of what is there */
	bool touched; /* SAME, but of another time of change */
	char temp[PATH_MAX + 128], aside[PATH_MAX + 64 + NAME_MAX]; /* "": none */
	bool in_place; /* it is the file that it was: it keeps its inode */
	bool put;
};

struct restart_files {
	uint32_t policy; /* enum msg_files */
	struct restart_file *all;
	size_t count;
	void *buffer; /* of IMAGE_CONTENT_BLOCK bytes */
	char aside[PATH_MAX + 32]; /* the directory for what was there; "": not made yet */
	void (*alive)(void *arg); /* called while it takes its time */
	void *alive_arg;
};

/* As image_content_copy(), while the coordinator is told that we live. 0 or -errno. */
int restart_files_copy(struct restart *r, int from, int to, uint64_t size, uint64_t *ret_sum);

/* contents->aside is there from now on: 0 or -errno. */
int restart_files_make_aside(struct restart *r);

/*
 * restart_files_outside.c: does a process that is not of the job have a file open for writing that is to be put back? @judge, of each file that somebody has open so (@ours: we
 * ourselves; @last: nothing will change any more), gives its path if that is in the way. True: yes, and it has been said.
 */
typedef const char *restart_outside_judge(struct restart *r, const struct stat *st, bool ours, bool last);
bool restart_outside_writes(struct restart *r, restart_outside_judge *judge);

/* restart_files_outside.c: of the files that differ, those that somebody else writes to: refused, or left. 0 or an exit code. */
int restart_files_check_outside(struct restart *r);

/* restart_files_put.c: the content that the checkpoint has, -1 and said if it is not there; its time of change, 0 or -errno; a name for what was there, free as it is asked for:
 * @stem, or @stem.2, .. as @make makes it, 0 or -errno. */
int restart_file_open_saved(struct restart *r, const struct restart_file *f);
int restart_file_set_times(int fd, const char *path, const struct image_content *c);
int restart_file_name_aside(struct restart *r, struct restart_file *f, int (*make)(struct restart *r, struct restart_file *f));

/* restart_files_place.c: the three steps of a file that is put back in its place. 0 or an exit code, said. */
bool restart_file_is_in_place(const struct restart_file *f);
int restart_file_stage_in_place(struct restart *r, struct restart_file *f);
int restart_file_put_in_place(struct restart *r, struct restart_file *f);
void restart_file_undo_in_place(struct restart *r, struct restart_file *f);

/* restart_files_put.c: those that are missing above the file @of. 0 or -errno. */
int restart_files_make_directories(const char *of);

/* restart_files_put.c: all or nothing. 0 or an exit code. */
int restart_files_put_back(struct restart *r);
