/* SPDX-License-Identifier: BSD-2-Clause */
/* See let_run.h. No state. */
#include "base/let_run.h"

#include "base/log.h"

void let_run_path(char path[LET_RUN_PATH], const char *jobdir, uint64_t where, uint32_t pid, const char *suffix)
{
	fm_format(path, LET_RUN_PATH, "%s/" LET_RUN_PREFIX "%016lx-%u%s", jobdir, (unsigned long)where, pid, suffix);
}
