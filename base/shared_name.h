/* SPDX-License-Identifier: BSD-2-Clause */
/* How a restart calls the object that a file in memory without a name has become: by the file's device (major << 20 | minor) and inode. */
#pragma once

#define SHARED_NAME "fermata-%lx-%lx"
