/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors and mappings that belong to a device: made inside its library, neither saved nor restored. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

void device_fd_add(int fd);
void device_fd_remove(int fd);
bool device_owns_fd(int fd);
void device_range_add(uint64_t start, uint64_t len);
void device_range_remove(uint64_t start, uint64_t len);
/* The first device range that overlaps [start, end), clipped to it. */
bool device_range_next(uint64_t start, uint64_t end, uint64_t *ret_start, uint64_t *ret_end);
/* Around a fork: the child gets no range list that is half changed. */
void device_lock(void);
void device_unlock(void);
/* After a restart: whatever was there is gone. */
void device_forget(void);

/* Files that a device's library stands in for: the plugins' file_* hooks, or FERMATA_NOT_MINE. */
int device_file_open(const char *path, int flags);
long device_file_write(int fd, const void *data, size_t n);
int device_file_stat(int fd, struct stat *st);
int device_file_close(int fd);
int device_path_stat(const char *path, struct stat *ret);
