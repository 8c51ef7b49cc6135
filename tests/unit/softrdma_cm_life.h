/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of saved rdma_cm share: all of it is written down, dies with all its sockets as a killed process's does, and is made again: the program goes on as if nothing
 * had been, with the handles and descriptors that librdmacm has. Both ends are in this process, on a channel each. With two hosts (END_HOSTS) each
 * connection is one between them up to the first death; the lives after it are on one.
 */
#pragma once

#include "softrdma_cm_util.h"

#define life_test(f) cmocka_unit_test_setup(f, another_host)

extern struct cm_functions {
	int (*settle)(void), (*next)(int fd), (*join)(int accept);
	long (*save)(void *to, size_t room);
	int (*load)(const void *from, size_t n);
	int (*each)(int (*fn)(const void *own, const void *other, int fd, void *arg), void *arg);
	void (*hold)(int held);
	int (*lines)(int (*fn)(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg), void *arg);
	int (*here)(const void *address), (*close)(int fd);
} cm;

struct line {
	uint8_t own[17], other[17];
	uint32_t said, heard;
};

struct lines {
	struct line line[64];
	uint32_t count;
};

/* places_make, and finds the functions. */
int lives_make(void **state);
/* Nothing moves any more, until cm.hold(0). */
void settled(void);
struct lines lines_now(void);
/* The channels' numbers are kept, as /dev/null. */
void die(void);
/* A whole life: what was written is all that is left. How much longer what is written then is. */
long life_next(void);
/* A request that had not been said takes up no place any more. */
void life_again(void);
