/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of a process' flags. Little-endian. */
#pragma once

#include <stdint.h>

#define PROCESS_RECORD_VERSION 2

struct process_record {
	uint32_t version;
	uint32_t subreaper;    /* PR_SET_CHILD_SUBREAPER */
	uint32_t huge_disable; /* PR_SET_THP_DISABLE: 1, and flags of later kernels */
	uint32_t merge;	       /* PR_SET_MEMORY_MERGE */
	uint32_t barriers;     /* MEMBARRIER_CMD_REGISTER_* that have been called */
	uint32_t core_filter;  /* /proc/self/coredump_filter; UINT32_MAX: not known */
	uint64_t states;       /* bit N: it has leave to use state N of the processor (ARCH_GET_XCOMP_PERM) */
	uint32_t write_xor_execute; /* PR_SET_MDWE: its flags */
	uint32_t oom; /* 1001 + oom_score_adj; 0: what the job was begun with, or not known */
	uint64_t began; /* in ticks of CLOCK_BOOTTIME, 100 a second; 0: not known */
};
_Static_assert(sizeof(struct process_record) == 48, "process_record");
