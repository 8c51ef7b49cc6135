/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors, mappings and threads that belong to a device: made inside its library, neither saved nor restored. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/macro.h"
#include "fermata/plugin.h"
#include "image/record.h"
#include "image/writer.h"

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
/* Around a call that makes or ends something of the device's, and its note. Only a device's own thread has to. */
void device_making_begin(void);
void device_making_end(void);
/* Begin, in a call that may be anybody's. */
static inline void device_making_enter(void)
{
	if (unlikely(fermata_in_device()))
		device_making_begin();
}
/* Nothing is being made by the device's threads in between: what is listed and what is noted agree. */
void device_list_begin(void);
void device_list_end(void);
/* What changes while the image is written. */
struct image_range device_live(void);

/* ---- device_thread.c ---- */
#define DEVICE_THREAD 0x80000000u /* in fermata_thread.device_depth: all of the thread is inside the device's library */
bool device_owns_thread(int tid);
unsigned int device_threads_count(void); /* being made, or there */
_Noreturn void device_threads_let_go(void); /* ends the caller, and a process that these threads alone hold */
/* After a restart, and in the child of a fork: none of them is there. */
void device_threads_forget(void);
struct image_range device_threads_live(void);
/* As clone, of a thread; in a device call. */
int device_thread_make(int (*fn)(void *), void *stack, int flags, void *arg, int *parent_tid, void *tls, int *child_tid);

/* ---- device_pthread.c ---- */
void device_pthreads_forget(void);
struct image_range device_pthreads_live(void);

/* Files that a device's library stands in for: the plugins' file_* hooks, or FERMATA_NOT_MINE. */
int device_file_open(const char *path, int flags);
int proc_file_open(const char *path, int flags);
long device_file_write(int fd, const void *data, size_t n);
long device_write(int fd, const void *data, size_t n);
int device_file_stat(int fd, struct stat *st);
int device_file_close(int fd);
int device_path_stat(const char *path, struct stat *ret);
