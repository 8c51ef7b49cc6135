/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread has chosen against speculation of its processor (PR_SET_SPECULATION_CTRL; Documentation/userspace-api/spec_ctrl.rst): in a word of an image, 8 bits for each kind of
 * speculation (PR_SPEC_STORE_BYPASS, ..) with 1 + what PR_GET_SPECULATION_CTRL answers; 0: the kernel does not know that kind, or it was not asked.
 */
#pragma once

#include <linux/prctl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/sys.h"

#define SPECULATION_KINDS 3u

static inline long speculation_ask(uint32_t kind)
{
	return RAW5(SYS_prctl, PR_GET_SPECULATION_CTRL, kind, 0, 0, 0);
}

static inline uint32_t speculation_note(void)
{
	uint32_t all = 0;

	for (uint32_t kind = 0; kind < SPECULATION_KINDS; kind++) {
		long has = speculation_ask(kind);

		if (has >= 0 && has < UINT8_MAX)
			all |= (uint32_t)(1 + has) << 8 * kind;
	}
	return all;
}

/* What it answered of @kind; 0: nothing that could have been chosen. */
static inline uint32_t speculation_noted(uint32_t noted, uint32_t kind)
{
	uint32_t had = noted >> 8 * kind & UINT8_MAX;

	return had ? had - 1 : 0;
}

/* What one that was noted so, and @has now, is to ask for (PR_SPEC_*); 0: nothing. What nobody may choose, there or here, is the host's matter. */
static inline uint32_t speculation_wanted(uint32_t noted, uint32_t kind, long has)
{
	uint32_t had = speculation_noted(noted, kind);

	return had & PR_SPEC_PRCTL && has > 0 && has & PR_SPEC_PRCTL && (uint32_t)has != had ? had & ~(uint32_t)PR_SPEC_PRCTL : 0;
}

/* That it had protected itself, and @has not, nor may: a processor that needs no protection answers PR_SPEC_NOT_AFFECTED. */
static inline bool speculation_lacks(uint32_t noted, uint32_t kind, long has)
{
	const uint32_t safe = kind == PR_SPEC_L1D_FLUSH ? PR_SPEC_ENABLE : PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE | PR_SPEC_DISABLE_NOEXEC;
	uint32_t had = speculation_noted(noted, kind);

	return had & PR_SPEC_PRCTL && had & safe && has && (has < 0 || !((uint32_t)has & (safe | PR_SPEC_PRCTL)));
}
