/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a thread is in a region (fermata/region.h). */
#pragma once

#include <stdbool.h>
#include <ucontext.h>

/* In a handler of ours, of what it has interrupted. A region that the thread has jumped out of is ended. */
bool region_holds(const ucontext_t *interrupted);
