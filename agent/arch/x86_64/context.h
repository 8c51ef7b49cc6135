/* SPDX-License-Identifier: BSD-2-Clause */
/* CPU code of the agent: a setjmp whose second return is made by the restorer, thread pointers. */
#pragma once

#include "base/sys.h"
#include "image/record.h"

/* 0 when it saves; 1 when the restorer comes back to it. What the caller kept in memory is as it was when dumped. */
int arch_context_save(struct image_context *ctx) __attribute__((returns_twice));

static inline uint64_t arch_fs_base(void)
{
	uint64_t v = 0;

	RAW2(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &v);
	return v;
}

static inline uint64_t arch_gs_base(void)
{
	uint64_t v = 0;

	RAW2(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &v);
	return v;
}
