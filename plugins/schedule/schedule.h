/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the schedule plugin share. */
#pragma once

#include <stddef.h>

#include "base/begun.h"
#include "fermata/plugin.h"
#include "plugins/schedule/schedule_record.h"

/* ---- schedule_restore.c ---- */
int schedule_restore(const void *record, size_t len);
void schedule_restarted(void);
