/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of `--external` for enum msg_external. */
#pragma once

#include "protocol/message.h"
#include "protocol/words.h"

/* MSG_EXTERNAL_UNSAID: no such word. */
static inline uint32_t external_parse(const char *word)
{
	static const char *const words[] = { [MSG_EXTERNAL_FAIL] = "fail", [MSG_EXTERNAL_ERROR] = "error", [MSG_EXTERNAL_RECONNECT] = "reconnect-listen" };

	return words_find(word, words, MSG_EXTERNAL_RECONNECT);
}

/* The flag of a request for a policy. */
static inline uint32_t external_flag(uint32_t external)
{
	return external ? MSG_CHECKPOINT_EXTERNAL_FAIL << (external - MSG_EXTERNAL_FAIL) : 0;
}

/* What a checkpoint that was asked for with @flags has, in a job with @usual. Of several that ask together the one that lets most go counts. */
static inline uint32_t external_of(uint32_t flags, uint32_t usual)
{
	for (uint32_t i = MSG_EXTERNAL_RECONNECT; i >= MSG_EXTERNAL_FAIL; i--)
		if (flags & external_flag(i))
			return i;
	return usual;
}
