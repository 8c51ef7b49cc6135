/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each phase asks of the files of the agent and of the plugins, and in which order. No state: which phase may come when, and who is told how it went, is phase.c's.
 */
#include "agent/hooks.h"

#include <errno.h>
#include <string.h>

#include "agent/advice.h"
#include "agent/agent.h"
#include "agent/content.h"
#include "agent/fd.h"
#include "agent/inodes.h"
#include "agent/kept.h"
#include "agent/memory.h"
#include "agent/plugins.h"
#include "agent/sysv.h"
#include "agent/tracer.h"

void hooks_each(size_t hook)
{
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++) {
		void (*fn)(void);

		memcpy(&fn, (const char *)*p + hook, sizeof(fn));
		if (fn)
			fn();
	}
}

/* Without CONFIG_CHECKPOINT_RESTORE the kernel does not list what timer_create made. */
static int refuse_timers(void)
{
	if (!wrap_timer_any() || !RAW3(SYS_faccessat, AT_FDCWD, "/proc/self/timers", 4 /* R_OK */))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "process %u uses timers (timer_create), and this kernel has no /proc/self/timers "
			    "(CONFIG_CHECKPOINT_RESTORE) to list them", agent.pid);
}

static int refuse_tiles(void)
{
	struct stop_thread *t;

	for (uint32_t i = 0; (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_STOPPED && t->tiles)
			return fermata_fail(-EOPNOTSUPP, "thread %d of process %u has used AMX tiles, which cannot be given back yet: have it do without (for oneDNN: ONEDNN_MAX_CPU_ISA=AVX512_CORE)",
					    t->tid, agent.pid);
	return 0;
}

int hooks_quiesce(void)
{
	int r = standing_enter();

	let_run_note();
	if (!r)
		r = refuse_timers();
	if (!r)
		r = refuse_tiles();
	kept_note();
	if (!r)
		r = advice_note();
	if (!r)
		r = memory_publish_shared();
	for (const struct fermata_plugin *const *p = agent_plugins; *p && !r; p++)
		if ((*p)->quiesce)
			r = (*p)->quiesce();
	if (!r)
		r = fd_quiesce(agent.jobdir);
	return r ? r : content_quiesce();
}

int hooks_drain(uint32_t round)
{
	int r = fd_drain(round), more = r == FERMATA_DRAIN_MORE;

	if (!round && r >= 0)
		r = content_drain();
	for (const struct fermata_plugin *const *p = agent_plugins; *p && r >= 0; p++)
		if ((*p)->drain) {
			r = (*p)->drain(round);
			more |= r == FERMATA_DRAIN_MORE;
		}
	return r < 0 ? r : more ? PHASE_STATUS_MORE : PHASE_STATUS_OK;
}

void hooks_resume(const struct msg_phase *m)
{
	standing_end(m->reason);
	content_end(m);
	fd_resume(m->reason);
	pending_begin();
	hooks_each(offsetof(struct fermata_plugin, resume));
	pending_give_back();
	sysv_end();
	records_free();
	names_clear();
	tracer_take_again();
}

static int each_restart_hook(int (*fds)(void), size_t hook)
{
	int r = fds ? fds() : 0;

	for (const struct fermata_plugin *const *p = agent_plugins; *p && r >= 0; p++) {
		int (*fn)(void);

		memcpy(&fn, (const char *)*p + hook, sizeof(fn));
		if (fn)
			r = fn();
	}
	return r;
}

static int recreate(void)
{
	int r = fd_recreate(&agent.restart);

	for (const struct fermata_plugin *const *p = agent_plugins; *p && r >= 0; p++) {
		size_t len = 0;
		const void *record = records_plain((*p)->name, &len);

		if ((*p)->recreate && record)
			r = (*p)->recreate(record, len);
	}
	return r;
}

static void watch_restarted(void)
{
	thread_checkpoint_await();
	agent_watch();
}

int hooks_restart(uint32_t phase)
{
	switch (phase) {
	case PHASE_RECREATE:
		return recreate();
	case PHASE_PUBLISH:
		return each_restart_hook(NULL, offsetof(struct fermata_plugin, learn));
	case PHASE_RECONNECT:
		return each_restart_hook(fd_reconnect, offsetof(struct fermata_plugin, reconnect));
	case PHASE_REFILL:
		return each_restart_hook(fd_refill, offsetof(struct fermata_plugin, refill));
	default:
		return fermata_fail(-EPROTO, "the coordinator asks for phase %u, which this version does not know", phase);
	}
}

void hooks_restarted(void)
{
	int r;

	content_end(NULL);
	inodes_restarted();
	fd_restarted();
	hooks_each(offsetof(struct fermata_plugin, restarted));
	sysv_end();
	moved_end();
	kept_restarted();
	advice_restarted();
	records_free();
	names_clear();
	agent.own_credentials = agent.restart.caps;
	memset(&agent.restart, 0, sizeof(agent.restart));
	if (agent.own_credentials)
		rights_drop();
	r = thread_watch_start(watch_restarted);
	if (r)
		log_error("process %u cannot be checkpointed again: no new thread (errno %d)", agent.pid, -r);
	hooks_each(offsetof(struct fermata_plugin, watched));
	tracer_take_again();
}
