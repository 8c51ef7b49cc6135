/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plan: all that the restorer needs to rebuild one process, a flat file (memfd) of fixed-width structs. `fermata restart`
 * makes it from an image; the restorer trusts it.
 *
 *   | struct plan | plan_mapping[] | plan_block[] | plan_load[] | image_thread[] | image_sigaction[64] | plan_segment[] | plan_patch[] | path map |
 *
 * Mappings and loads ascend by address and do not overlap; a load lies within one mapping. Mappings of the kind VDSO
 * are not made but moved: they say where the kernel's own ones have to go. (When the image is another kernel's, its own vdso is an anonymous
 * mapping like others, and patches make its functions jump to the kernel's.)
 *
 * The path map is for the agent, which finds it where the plan lies in the hole.
 *
 * A block is one of the image's (doc/image-format.md), and what is read and checked at a time: it has the loads of its bytes, in
 * ascending order; between them it has holes. A block of the image that is a hole altogether may be left out. The first blocks are dense: wherever they
 * load to, huge pages of the kernel's would have hardly more memory than they load. The others are read when those are in, without huge pages.
 */
#pragma once

#include <stdint.h>

#include "image/record.h"

#define PLAN_MAGIC 0x314e414c50544d46u /* "FMTPLAN1" */

struct plan {
	uint64_t magic;
	uint64_t size; /* bytes of the whole plan */
	uint64_t hole_start, hole_end; /* free in the image's layout: the restorer moves itself there */
	uint32_t mapping_count, block_count, load_count, thread_count;
	uint32_t helper_tid; /* first of eager_threads thread ids that no thread of the job has; 0: any */
	uint32_t verify; /* 1: each block is held against its checksum */
	uint64_t mappings, blocks, loads, threads, signals; /* offsets from the plan's start */
	struct image_process process;
	struct image_restart restart; /* copied to process.restart_info */
	uint32_t log_fd;  /* what to say to `fermata restart`: lines, and the marks below */
	uint32_t gate_fd; /* a byte comes when the memory of every process is in and whole: only then are threads made */
	uint32_t eager_threads, segment_count;
	uint64_t segments, patches;
	uint32_t patch_count;
	uint32_t own_fd; /* the restorer's own file, to be closed; UINT32_MAX: none */
	uint32_t turns_fd, turns_size; /* struct plan_turns, bytes; 0: threads get their ids by set_tid */
	uint64_t path_map; /* texts of base/path_map.h */
	uint64_t terminals; /* struct image_terminal */
	uint32_t dense_count, reserved; /* blocks */
};

/*
 * Without a capsule numbers are walked to (base/pid_walk.h), one after the other: first those of all processes, then those of all threads. Shared
 * by everyone in the restart; who wants ids[turn] gets it and goes on to the next. Futex: turn.
 */
struct plan_turns {
	uint32_t turn, failed; /* 1: nobody is to wait any more */
	uint32_t count, reserved;
	uint32_t ids[];
};

/* Bytes on log_fd that no line has. */
enum plan_mark {
	PLAN_FAILED = 0, /* this process has failed; why, the line before says */
	PLAN_DAMAGED = 1, /* the same: its image is damaged */
	PLAN_LOADED = 2, /* the memory of this process is in, and its image is whole */
	PLAN_PROGRESS = 3, /* some more of it is in */
};

struct plan_mapping {
	uint64_t start, end;
	uint32_t kind, prot; /* enum image_mapping_kind; the final PROT_* */
	uint32_t mmap_flags; /* MAP_* for the kernel, MAP_FIXED_NOREPLACE excluded; SYSV: the segment's id */
	int32_t fd;	     /* open in the restorer for FILE and SHARED kinds, else -1 */
	uint64_t offset;
};

/* A System V segment: attachments by ascending base first, then what else has to be done with one. */
struct plan_segment {
	uint64_t base, size; /* in bytes, up to its last page's end */
	int32_t id;
	uint32_t flags;
	uint32_t mode, uid, gid, reserved; /* of SETTLE: as in struct image_sysv */
};
enum {
	PLAN_SEGMENT_ATTACH = 1,
	PLAN_SEGMENT_READONLY = 2,  /* with SHM_RDONLY */
	PLAN_SEGMENT_TRANSIENT = 4, /* until its pages are read */
	PLAN_SEGMENT_TOUCH = 8,	    /* this process is to be its lpid */
	PLAN_SEGMENT_SETTLE = 16,   /* owner, permissions, lock and mark for removal are this process' matter */
};

struct plan_block {
	uint64_t file_offset, sum; /* XXH3-64 of its bytes, holes as zeros */
	uint32_t length, load_count, first_load, reserved;
};

/* Bytes of the image that go to memory. */
struct plan_load {
	uint64_t address, length, file_offset;
};
#define PLAN_NOWHERE 1u /* the address of bytes that are checked only */

/* A jump at @address, in memory that is loaded, to @target. */
struct plan_patch {
	uint64_t address, target;
};
#define PLAN_PATCHES 16u
#define PLAN_JUMP_ROOM 16u /* bytes that it takes at most */

/*
 * The hole, from its start:
 *
 *   | the restorer's code | struct restorer, one page | plan | plan_turns | parked vvar and vdso | stacks: leader, then threads or helpers |
 */
#define PLAN_HOLE_CODE 65536u
#define PLAN_HOLE_PLAN (PLAN_HOLE_CODE + 4096u) /* where the plan begins */
#define PLAN_HOLE_STACK 16384u
#define PLAN_EAGER_MAX 16u

static inline uint32_t plan_turns_size(uint32_t count)
{
	return (uint32_t)(sizeof(struct plan_turns) + count * sizeof(uint32_t));
}

static inline uint64_t plan_page_up(uint64_t n)
{
	return (n + 4095) & ~(uint64_t)4095;
}

static inline uint64_t plan_hole_size(const struct plan *p)
{
	uint64_t stacks = 1 + (p->thread_count > PLAN_EAGER_MAX ? p->thread_count : PLAN_EAGER_MAX);

	return PLAN_HOLE_PLAN + plan_page_up(p->size) + plan_page_up(p->turns_size) +
	       plan_page_up(p->process.vdso_end - p->process.vvar_start) + stacks * PLAN_HOLE_STACK;
}
