/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the coordinator's phases do in this process: the hooks of each are run, and how it went is answered. Legal moves, as in
 * doc/protocol.md (the hooks: hooks.c):
 *
 *   idle -> SUSPEND -> QUIESCE -> DRAIN (rounds) -> WRITE -> RESUME -> idle
 *   any of them -> RESUME with a reason (it has failed) -> idle
 *   a lost link in any of them: as RESUME with -ECONNRESET, then the thread ends and the program runs on alone
 *
 * Idle, the watch thread reads the link. When it has stopped the program's threads it makes the checkpoint thread, which reads the link from
 * there on, up to RESUME or the link's loss, and ends. So `stopped` says as well which of them it is.
 *
 * The frame that ends a phase carries the first cause that a hook named with fermata_fail. exec takes link_lock for good, so the
 * lock is held only while a frame is on its way, never while waiting for one.
 */
#include "agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "agent/device.h"
#include "agent/hooks.h"
#include "agent/tracer.h"
#include "base/arch/x86_64/cpu.h"
#include "base/fault.h"
#include "image/record.h"

#define CHILDREN_MAX 4096u

static char waits_text[160]; /* of a drain that is not through */
static bool stopped; /* the program's threads stand, the checkpoint thread is at work */
static bool outwaits; /* and all is as if they ran: it waits for the next attempt */
static struct msg_phase suspended; /* the SUSPEND that it begins with */
static uint32_t living[CHILDREN_MAX];
static struct image_zombie dead[CHILDREN_MAX];
static struct children children = { .living = living, .living_room = CHILDREN_MAX, .dead = dead, .dead_room = CHILDREN_MAX };

static uint32_t living_count(void)
{
	return children.living_count < CHILDREN_MAX ? children.living_count : CHILDREN_MAX;
}

bool phase_had_child(uint32_t pid)
{
	for (uint32_t i = 0; i < living_count(); i++)
		if (living[i] == pid)
			return true;
	return false;
}

int fermata_fail(int err, const char *fmt, ...)
{
	va_list ap;

	if (agent.fail_text[0])
		return err;
	va_start(ap, fmt);
	fm_vformat(agent.fail_text, sizeof(agent.fail_text), fmt, ap);
	va_end(ap);
	if (err == -EMFILE)
		fm_format(agent.fail_text + strlen(agent.fail_text), sizeof(agent.fail_text) - strlen(agent.fail_text), ": it has no descriptor left; raise the limit of open files (ulimit -Hn)");
	return err;
}

void fermata_waits(const char *fmt, ...)
{
	va_list ap;

	if (waits_text[0])
		return;
	va_start(ap, fmt);
	fm_vformat(waits_text, sizeof(waits_text), fmt, ap);
	va_end(ap);
}

/* In the watch thread. A process whose last thread has ended without an end of the process is let go: only we held it, or the device. */
static int stop_threads(void)
{
	const uint32_t patience = agent.timeout_ms / 4 * 3; /* so that we name the thread before the coordinator names us */
	int r = traced_await(raw_now_ns() + (uint64_t)patience * 1000000u);

	if (!r)
		r = stop_all(patience);

	if (r < 0)
		return fermata_fail(r, "the threads of process %u do not stop (errno %d)", agent.pid, -r);
	if (!stop_count())
		device_threads_let_go();
	return 0;
}

static int suspend(struct msg_phase_done *done)
{
	int r;

	limits_make_room();
	r = children_list(&children);
	standing_begin();
	if (r < 0)
		return fermata_fail(r, "cannot list the children of process %u (errno %d)", agent.pid, -r);
	done->children = living_count();
	return tracer_let_go(living, done->children);
}

void phase_forked(void)
{
	stopped = false;
}

/* The threads go last: one that forks at once must not give its child what is left of this checkpoint. */
static void resume(const struct msg_phase *m)
{
	if (!outwaits)
		hooks_resume(m);
	outwaits = m->round == RESUME_STAND && !let_run_stopped() && !ptrace_tracer();
	if (outwaits)
		return;
	limits_end_room();
	let_run_through();
	stopped = false;
	stop_release();
}

static void restart_done(void)
{
	bool pause = agent.restart.pause;

	hooks_restarted();
	continued_again(pause);
	if (pause) /* to this thread, which so does not come past here before the process is told to go on */
		RAW3(SYS_tgkill, agent.pid, raw_gettid(), SIGSTOP);
	let_run_children_restarted(living, living_count());
	let_run_stop_again();
	stopped = false;
	stop_release();
}

static int run(const struct msg_phase *m, struct msg_phase_done *done)
{
	int r;

	switch (m->phase) {
	case PHASE_SUSPEND:
		return suspend(done);
	case PHASE_QUIESCE:
		return hooks_quiesce();
	case PHASE_DRAIN:
		if (!m->round)
			let_run_note_children(living, living_count());
		return hooks_drain(m->round);
	case PHASE_WRITE:
		return dump_write(m, done);
	case PHASE_RECREATE:
		r = let_run_restart();
		return r ? r : hooks_restart(m->phase);
	default:
		return hooks_restart(m->phase);
	}
}

/* What comes before the answer. */
static int send_first(const struct msg_phase_done *done)
{
	int r = 0;

	if (done->status < 0)
		return 0;
	if (done->phase == PHASE_SUSPEND)
		r = child_ended_send(dead, children.dead_count < CHILDREN_MAX ? children.dead_count : CHILDREN_MAX);
	return r ? r : names_send();
}

static int answer(const struct msg_phase *m, struct msg_phase_done *done)
{
	char tail[sizeof(agent.fail_text) + sizeof(living)];
	const char *said = done->status == PHASE_STATUS_MORE ? waits_text : agent.fail_text;
	size_t text = strlen(said), kids = done->children * sizeof(living[0]);
	int r;

	done->phase = m->phase;
	done->round = m->round;
	done->text_length = (uint32_t)text;
	memcpy(tail, said, text);
	memcpy(tail + text, living, kids);
	lock_acquire(&agent.link_lock);
	r = send_first(done);
	if (!r)
		r = link_send2(&agent.link, MSG_PHASE_DONE, done, sizeof(*done), tail, text + kids);
	lock_release(&agent.link_lock);
	return r;
}

#define FAULTS(phase) [PHASE_##phase] = { FAULT_AGENT_BEFORE_##phase, FAULT_AGENT_AFTER_##phase }
static const struct {
	enum fault before, after;
} faults[] = { FAULTS(SUSPEND), FAULTS(QUIESCE),  FAULTS(DRAIN),   FAULTS(WRITE),     FAULTS(RESUME),
	       FAULTS(RECREATE), FAULTS(PUBLISH), FAULTS(RECONNECT), FAULTS(REFILL) };

/* DRAIN counts once, whatever its rounds. */
static int fault_at(const struct msg_phase *m, bool after)
{
	uint32_t phase = m->phase;
	int r = 0;

	if (phase < ARRAY_SIZE(faults) && !(phase == PHASE_DRAIN && m->round))
		r = fault_point(after ? faults[phase].after : faults[phase].before);
	return r ? fermata_fail(r, "process %u fails here because FERMATA_FAULT asks for it", agent.pid) : 0;
}

/* @status: what has become of the phase so far. */
static int serve(const struct msg_phase *m, int status)
{
	struct msg_phase_done done = { .status = status };

	if (!done.status)
		done.status = run(m, &done);
	if (done.status >= 0 && fault_at(m, true))
		done.status = -EIO;
	return answer(m, &done);
}

static void take_resume(const struct msg_phase *m)
{
	if (agent.restart.size) {
		restart_done();
		return;
	}
	(void)fault_at(m, false);
	if (stopped)
		resume(m);
	else
		let_run_through();
	names_clear();
	(void)fault_at(m, true);
}

/* The threads run: only SUSPEND can be. */
static int take_idle(const struct msg_phase *m, int status)
{
	if (!status && m->phase != PHASE_SUSPEND)
		status = fermata_fail(-EPROTO, "the coordinator asks for phase %u of a process that runs", m->phase);
	if (!status)
		status = begun_refuse();
	agent.attempt = m->attempt;
	if (!status)
		status = stop_threads();
	if (!status) {
		agent.checkpoint = m->checkpoint;
		suspended = *m;
		stopped = true;
		status = thread_checkpoint_run(agent_serve);
		if (!status)
			return 0;
		stopped = false;
		stop_release();
		thread_fail(status);
	}
	return serve(m, status);
}

static int take_phase(const struct link_message *lm)
{
	struct msg_phase m = { 0 };
	int status;

	if (lm->length < offsetof(struct msg_phase, text))
		return -EPROTO;
	memcpy(&m, lm->data, lm->length < sizeof(m) ? lm->length : sizeof(m));
	agent.fail_text[0] = waits_text[0] = 0;
	agent.files = m.files;
	agent.external = m.external;
	agent.text = m.text;
	if (m.phase == PHASE_RESUME) {
		take_resume(&m);
		return 0;
	}
	status = fault_at(&m, false);
	if (outwaits && m.phase == PHASE_SUSPEND) {
		agent.attempt = m.attempt;
		agent.checkpoint = m.checkpoint;
		outwaits = false;
	}
	return stopped ? serve(&m, status) : take_idle(&m, status);
}

static int take(const struct link_message *m)
{
	switch (m->type) {
	case MSG_PHASE:
		return take_phase(m);
	case MSG_NAMES_REPLY:
		return names_take(m);
	case MSG_ERROR:
		agent.with_relay = false;
		return -ECONNRESET;
	default:
		return 0; /* newer than us: doc/protocol.md says it can be passed over */
	}
}

static bool wait_for_frame(int timeout_ms)
{
	struct pollfd p = { .fd = agent.link.fd, .events = POLLIN };
	long r;

	do
		r = RAW3(SYS_poll, &p, 1, timeout_ms);
	while (r == -EINTR);
	return r > 0;
}

int phase_called_off(void)
{
	return !agent.restart.size && wait_for_frame(0) ? -ECANCELED : 0;
}

static int take_frame(void)
{
	struct link_message m;
	int r;

	if (!wait_for_frame(-1))
		return -ECONNRESET;
	lock_acquire(&agent.link_lock);
	r = link_receive(&agent.link, &m, (int)agent.timeout_ms);
	lock_release(&agent.link_lock);
	return r ? r : take(&m);
}

void agent_watch(void)
{
	while (!take_frame())
		;
	agent_link_lost();
	let_run_through();
}

void agent_serve(void)
{
	int r = 0;

	arch_keys_open(); /* all of the program's memory is to be read */
	if (!agent.restart.size)
		r = serve(&suspended, 0);
	while (!r && stopped)
		r = take_frame();
	if (agent.restart.size) { /* half restarted and nobody to go on with: such a process must not run */
		log_error("the coordinator is gone in the middle of the restart");
		raw_exit_group(5);
	}
	if (stopped) {
		agent_link_lost();
		log_debug("the link is gone (errno %d); the program goes on without checkpoints", -r);
		resume(&(struct msg_phase){ .reason = -ECONNRESET });
	}
}
