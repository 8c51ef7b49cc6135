/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first pids of a container. Where a restart has no namespaces of its own the job comes back with its pids among all others (restart_walk.c), and those
 * of the first processes of a container are the ones that the next container's first processes have as well; those below 300 are handed out once only.
 * There the program is led away from them. No state.
 */
#include "cli/launch_apart.h"

#include <stdint.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/pid_walk.h"
#include "cli/restart.h"

#define FIRST 1000 /* pids that are not those of the first processes */
#define SPAN 8192  /* two containers' jobs differ */

bool launch_apart(void)
{
	long span = pid_walk_end() / 2 - FIRST;
	uint32_t more = 0;

	if (getpid() >= FIRST || span <= 0 || restart_capsule_probe() == 0)
		return false;
	if (getrandom(&more, sizeof(more), 0) < 0)
		more = (uint32_t)getpid();
	return pid_walk_near((uint32_t)(FIRST + more % (span < SPAN ? span : SPAN)), -1, 0) == 0;
}
