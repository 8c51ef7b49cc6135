/* SPDX-License-Identifier: BSD-2-Clause */
/* Masters of pseudo-terminals with a wanted number. */
#pragma once

#include <stdint.h>

/*
 * A new pseudo-terminal of the file system that @path, a ptmx, leads to: /dev/pts/@want if that is free, else another one. Its master, close-on-exec and nobody's controlling terminal;
 * or -errno. @flags: O_RDWR, O_NONBLOCK.
 */
int numbered_pty_open(const char *path, int flags, uint32_t want);
