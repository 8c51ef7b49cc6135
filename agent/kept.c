/* SPDX-License-Identifier: BSD-2-Clause */
/* One row for each file that keeps something of the process. None fails, and none asks another. */
#include "agent/kept.h"

#include <stddef.h>

#include "agent/agent.h"
#include "agent/tracer.h"
#include "base/macro.h"

static const struct kept {
	void (*note)(void), (*restarted)(void), (*forked)(void);
} kept[] = {
	{ limits_note, limits_restarted, NULL },
	{ spent_note, spent_restarted, spent_forked },
	{ parent_note, parent_restarted, parent_forked },
	{ bound_note, bound_restarted, NULL },
	{ NULL, standing_forget, NULL },
	{ NULL, exit_restarted, exit_forked },
	{ NULL, NULL, child_forked },
	{ NULL, NULL, stop_forked },
	{ NULL, NULL, traced_forked },
	{ NULL, NULL, begun_forked },
	{ NULL, NULL, phase_forked },
	{ NULL, NULL, wrap_timer_forked },
	{ NULL, NULL, wrap_inotify_forked },
	{ NULL, NULL, wrap_undo_forked },
	{ NULL, NULL, wrap_mqueue_forked },
	{ NULL, NULL, wrap_ptrace_forked },
};

#define EACH(member)                                           \
	do                                                     \
		for (size_t i = 0; i < ARRAY_SIZE(kept); i++)  \
			if (kept[i].member)                    \
				kept[i].member();              \
	while (0)

void kept_note(void)
{
	EACH(note);
}

void kept_restarted(void)
{
	EACH(restarted);
}

void kept_forked(void)
{
	EACH(forked);
}
