/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of `--files` for enum msg_files; and what processes say of the files that they write to, as names of their host. */
#pragma once

#include "protocol/message.h"
#include "protocol/words.h"

#define FILES_TAG "content"

struct files_key {
	char tag[8]; /* FILES_TAG */
	uint64_t dev, ino;
};
struct files_holder { /* a value: of each process that has it open for writing, or mapped shared and writable */
	uint32_t pid, mapped;
};

/* MSG_FILES_UNSAID: no such word. */
static inline uint32_t files_parse(const char *word)
{
	static const char *const words[] = { [MSG_FILES_RESTORE] = "restore", [MSG_FILES_CHECK] = "check", [MSG_FILES_IGNORE] = "ignore" };

	return words_find(word, words, MSG_FILES_IGNORE);
}
