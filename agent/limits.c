/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Resource limits. Noted in QUIESCE, and so in the image with the memory; set again when a restart is done, since until then descriptors and memory want what
 * `fermata restart` has. A limit is the one of then as far as the hard limit here lets it be. Only of locked memory the process keeps what it has here, if that is more: a
 * device may want more than the one before.
 *
 * A program that has taken all descriptors that it may have leaves none for a checkpoint, and one that may write small files only has none for its image. So while its threads stand it may
 * do both as far as the hard limits let it.
 *
 * Owns the noted limits, and those that are others meanwhile. Runs in the checkpoint thread.
 */
#include <sys/resource.h>

#include "agent/agent.h"

static struct rlimit noted[RLIM_NLIMITS];
static struct wide {
	int which;
	struct rlimit own; /* the program's, while there is room; 0: there is none */
} wide[] = { { .which = RLIMIT_NOFILE }, { .which = RLIMIT_FSIZE } };

void limits_make_room(void)
{
	for (struct wide *w = wide; w < wide + ARRAY_SIZE(wide); w++) {
		struct rlimit room;

		if (w->own.rlim_max || RAW4(SYS_prlimit64, 0, w->which, NULL, &room) < 0 || room.rlim_cur >= room.rlim_max)
			continue;
		w->own = room;
		room.rlim_cur = room.rlim_max;
		RAW4(SYS_prlimit64, 0, w->which, &room, NULL);
	}
}

static void forget_room(void)
{
	for (struct wide *w = wide; w < wide + ARRAY_SIZE(wide); w++)
		w->own = (struct rlimit){ 0 };
}

void limits_end_room(void)
{
	for (struct wide *w = wide; w < wide + ARRAY_SIZE(wide); w++)
		if (w->own.rlim_max)
			RAW4(SYS_prlimit64, 0, w->which, &w->own, NULL);
	forget_room();
}

void limits_note(void)
{
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (RAW4(SYS_prlimit64, 0, i, NULL, &noted[i]) < 0)
			noted[i] = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	for (const struct wide *w = wide; w < wide + ARRAY_SIZE(wide); w++)
		if (w->own.rlim_max)
			noted[w->which] = w->own;
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
	forget_room();
	for (int i = 0; i < RLIM_NLIMITS; i++)
		set(i);
}
