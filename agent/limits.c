/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Resource limits. Noted in QUIESCE, and so in the image with the memory; set again when a restart is done, since until then descriptors and memory want what
 * `fermata restart` has. A limit is the one of then as far as the hard limit here lets it be. Only of locked memory the process keeps what it has here, if that is more: a
 * device may want more than the one before.
 *
 * A program that has taken all descriptors that it may have leaves none for a checkpoint. So while its threads stand it may have as many as the hard limit says.
 *
 * Owns the noted limits, and the one that is another one meanwhile. Runs in the checkpoint thread.
 */
#include <sys/resource.h>

#include "agent/agent.h"

static struct rlimit noted[RLIM_NLIMITS];
static struct rlimit files; /* the program's own, while there is room; 0: there is none */

void limits_make_room(void)
{
	struct rlimit room;

	if (files.rlim_max || RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &room) < 0 || room.rlim_cur >= room.rlim_max)
		return;
	files = room;
	room.rlim_cur = room.rlim_max;
	RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, &room, NULL);
}

void limits_end_room(void)
{
	if (files.rlim_max)
		RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, NULL);
	files = (struct rlimit){ 0 };
}

void limits_note(void)
{
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (RAW4(SYS_prlimit64, 0, i, NULL, &noted[i]) < 0)
			noted[i] = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	if (files.rlim_max)
		noted[RLIMIT_NOFILE] = files;
}

static rlim_t least(rlim_t a, rlim_t b)
{
	return a < b ? a : b;
}

static void set(int which)
{
	struct rlimit now, to;

	if (RAW4(SYS_prlimit64, 0, which, NULL, &now) < 0 || (which == RLIMIT_MEMLOCK && now.rlim_cur >= noted[which].rlim_cur))
		return;
	to.rlim_max = which == RLIMIT_MEMLOCK ? now.rlim_max : least(noted[which].rlim_max, now.rlim_max);
	to.rlim_cur = least(noted[which].rlim_cur, to.rlim_max);
	if (to.rlim_cur < noted[which].rlim_cur && to.rlim_cur == now.rlim_max)
		log_warn("process %u: resource limit %d is %lu here, and was %lu: raise the hard limit (ulimit -H)", agent.pid, which,
			 (unsigned long)to.rlim_cur, (unsigned long)noted[which].rlim_cur);
	if (to.rlim_cur != now.rlim_cur || to.rlim_max != now.rlim_max)
		RAW4(SYS_prlimit64, 0, which, &to, NULL);
}

void limits_restarted(void)
{
	files = (struct rlimit){ 0 };
	for (int i = 0; i < RLIM_NLIMITS; i++)
		set(i);
}
