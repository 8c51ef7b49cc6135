/* SPDX-License-Identifier: BSD-2-Clause */
/* See exec_remote.c. */
#pragma once

#include <stdbool.h>

#define EXEC_REMOTE_EXTRA 3 /* arguments more; and one entry of the environment */
#define EXEC_REMOTE_PATH 544

/*
 * True: *@file, whose path may be @command, is to be begun with @out instead, which has room for @argv and EXEC_REMOTE_EXTRA; @env, which has room
 * for one entry more, has got it. @search: as execvp does.
 */
bool exec_remote(const char **file, bool search, char *const argv[], char **env, char **out, char command[EXEC_REMOTE_PATH]);
