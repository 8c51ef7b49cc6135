/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether descriptors name one open file description, without kcmp: fd_mark.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct fd_mark {
	int fd, lock;
	int get, set;	/* fcntl commands; 0: nothing is marked */
	long mask, old, on;
	bool is_socket;
};

/* Whether two descriptors of one inode, with these F_GETFL, can have one description at all. */
bool fd_mark_possible(uint32_t status_a, uint32_t status_b);
/* Marks the description of @fd, for which @st and @status stand; 0, or -errno and nothing to end. */
int fd_mark_begin(struct fd_mark *m, int fd, const struct stat *st, uint32_t status);
/* Whether @other, a descriptor of the same inode for which fd_mark_possible said yes, has it. */
bool fd_mark_is_on(const struct fd_mark *m, int other);
void fd_mark_end(struct fd_mark *m);
