/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of options that stand for an enum of message.h, whose 0 is none of them. */
#pragma once

#include <stdint.h>
#include <string.h>

/* @words: of 1 to @last. 0: no such word. */
static inline uint32_t words_find(const char *word, const char *const *words, uint32_t last)
{
	for (uint32_t i = 1; word && i <= last; i++)
		if (!strcmp(word, words[i]))
			return i;
	return 0;
}
