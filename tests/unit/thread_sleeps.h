/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a thread of this process stands. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* It sleeps in a system call of that number. */
static inline int thread_sleeps_in(pid_t tid, int number)
{
	char path[64], text[64] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	return n > 0 && atoi(text) == number && strchr(text, ' ');
}
