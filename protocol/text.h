/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of `--text` for enum msg_text. */
#pragma once

#include "protocol/message.h"
#include "protocol/words.h"

/* MSG_TEXT_UNSAID: no such word. */
static inline uint32_t text_parse(const char *word)
{
	static const char *const words[] = { [MSG_TEXT_REF] = "ref", [MSG_TEXT_SAVE] = "save" };

	return words_find(word, words, MSG_TEXT_SAVE);
}

/* The flag of a request for a policy. */
static inline uint32_t text_flag(uint32_t text)
{
	return text == MSG_TEXT_REF ? MSG_CHECKPOINT_TEXT_REF : text == MSG_TEXT_SAVE ? MSG_CHECKPOINT_TEXT_SAVE : 0;
}

/* What a checkpoint that was asked for with @flags has, in a job with @usual. Of several that ask together the one that saves counts. */
static inline uint32_t text_of(uint32_t flags, uint32_t usual)
{
	return flags & MSG_CHECKPOINT_TEXT_SAVE ? (uint32_t)MSG_TEXT_SAVE : flags & MSG_CHECKPOINT_TEXT_REF ? (uint32_t)MSG_TEXT_REF : usual;
}
