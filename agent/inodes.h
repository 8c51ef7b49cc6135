/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that a restart had to make again keep the device and inode that the program knows them by. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* When every descriptor is in its place again. */
void inodes_restarted(void);

/* For the wrappers of stat and its kin, in enter: what the kernel says of a regular file becomes what the program knows. */
void inodes_show(uint64_t *dev, uint64_t *ino);
