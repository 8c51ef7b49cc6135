/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of `--files` for enum msg_files; and what processes say of the files that they write to, as names of their host. */
#pragma once

#include <string.h>

#include "protocol/message.h"

#define FILES_TAG "content"

struct files_key {
	char tag[8]; /* FILES_TAG */
	uint64_t dev, ino;
};
struct files_holder { /* a value: of each process that has it open for writing, or mapped shared and writable */
	uint32_t pid, mapped;
};

static const char *const files_words[] = { [MSG_FILES_RESTORE] = "restore", [MSG_FILES_CHECK] = "check", [MSG_FILES_IGNORE] = "ignore" };

/* MSG_FILES_UNSAID: no such word. */
static inline uint32_t files_parse(const char *word)
{
	for (uint32_t i = MSG_FILES_RESTORE; word && i <= MSG_FILES_IGNORE; i++)
		if (!strcmp(word, files_words[i]))
			return i;
	return MSG_FILES_UNSAID;
}
