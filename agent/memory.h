/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared memory between processes of the job. */
#pragma once

#include "agent/maps.h"

int memory_publish_shared(void); /* QUIESCE */
int memory_settle(struct maps *m); /* WRITE: which files in memory are memory, and which are files */
/* The runs of one shared mapping: what this process has to save of it as data, the rest as empty. */
int memory_shared_runs(const struct maps *m, const struct image_mapping *v, struct runs *runs);
