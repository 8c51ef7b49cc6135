/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of ours that a program may end with the libc's free(): some do so with lists of devices that have a function of their
 * own for it (qperf 0.4.11), which libibverbs' lists bear. Each is a mapping of its own behind 16 bytes that make it a large
 * block of glibc's malloc (2.36 and all before: the size before it, the size with bit 1: "a mapping"), which free() gives back with munmap.
 */
#pragma once

#include "base/macro.h"
#include "base/sys.h"

#define FREEABLE_HEAD 16u

/* @size zeroed bytes, or NULL. @map: mmap or its like for anonymous memory, NULL when there is none. */
static inline void *freeable_alloc(size_t size, void *(*map)(size_t len))
{
	size_t len = ALIGN_UP(size + FREEABLE_HEAD, (size_t)FM_PAGE_SIZE);
	size_t *head = map(len);

	if (!head)
		return NULL;
	head[1] = len | 2;
	return (char *)head + FREEABLE_HEAD;
}

static inline void freeable_free(void *p, int (*unmap)(void *at, size_t len))
{
	size_t *head;

	if (!p)
		return;
	head = (size_t *)((char *)p - FREEABLE_HEAD);
	unmap(head, head[1] & ~(size_t)7);
}
