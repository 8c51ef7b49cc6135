/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plan made by hand for a process that never lived (a page of code, data, a stack, shared and file memory, three threads with chosen ids),
 * its image, and the restorer that is given both in a user and pid namespace.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "image/plan.h"

#define CODE 0x10000000ul
#define DATA 0x20000000ul
#define DATA_SIZE (4ul << 20)
#define FILE_AT 0x30000000ul
#define SHARED 0x38000000ul
#define SEGMENT 0x3c000000ul	      /* attached, its second page unmapped, its third one read-only */
#define SEGMENT_READ_ONLY 0x3d000000ul
#define SEGMENT_TRANSIENT 0x3e000000ul /* a page of the image goes there */
#define SEGMENT_SIZE (3 * 4096 - 100)
#define STACK 0x7ff000000000ul
#define STACK_SIZE 0x21000ul
#define HOLE 0x100000000000ul
#define PIECE 65536ul
#define THREADS 3u
#define PID 4300u
#define EDGE (4096 + DATA_SIZE) /* of the image: a page of zeros, one of bytes, one of zeros */
#define IMAGE_SIZE (EDGE + 3 * 4096)

struct slot {
	uint64_t rax, fs, rsp, rbp, r15, tid, unused[2];
};

struct block { /* at DATA */
	uint32_t arrived, pad;
	uint64_t hole, hole_length, report_fd, wait_fd, unused[3];
	struct slot slots[THREADS];
	struct image_restart restart;
};

struct fixture {
	int report[2], hold[2], log[2], gate[2], image, file, shared, segment;
	pid_t outer;
	struct plan *plan;
	uint64_t vdso_shift;
};

/* restorer_plan.c: set-up and tear-down of a test. */
int fixture_make(void **state);
int fixture_free(void **state);

/* Byte @i of the data. */
unsigned char image_pattern(uint64_t i);
/* A bit of the byte at @at. */
void image_flip(struct fixture *f, uint64_t at);
/* The checksum of the image as it is. */
void image_sign_block(struct fixture *f, uint32_t index);

/* restorer_run.c: the namespaces, and the restorer as the plan's process there. */
void restorer_start(struct fixture *f);
void restorer_open_gate(struct fixture *f);
/* Its exit status; 77: there are no user namespaces here. */
int restorer_wait(struct fixture *f);
/* What it has said, but for its progress; the process has ended. */
const char *restorer_log(struct fixture *f, size_t *ret_length);

pid_t proc_first_child(pid_t of);
char *proc_read(pid_t pid, const char *name);
/* "task/TID/@file" of the thread called @comm. */
const char *proc_task(pid_t pid, const char *comm, const char *file);
