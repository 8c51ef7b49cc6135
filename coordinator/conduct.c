/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The conductor: one state machine for checkpoints and restarts. Owns coordinator.state, the count of members that have not done the
 * phase, and the timers of phases.
 *
 *              request            all reported,        all           nobody       all         renamed
 *   IDLE ------------> SUSPEND --------------> QUIESCE ----> DRAIN ----------> WRITE --> COMMIT -----> IDLE, or ENDING (--stop)
 *                         |   nothing half-open    |         ^  | MORE           |         |
 *                         |                        |         +--+ (next round)   |         |
 *                         +------------------------+---------------+-------------+---------+--> IDLE: failed, RESUME says why
 *                         +------------------------+---------------+-------------+--> AGAIN: refused for a moment (-EAGAIN), RESUME
 *                         ^                                                               |
 *                         +------------------------- after 10 to 320 ms ------------------+--> IDLE, ENDING (conduct_again.c)
 *
 *            all registered      all           all            all           all
 *   RESTORE ----------> RECREATE ----> PUBLISH ----> RECONNECT ----> REFILL ----> IDLE
 *      +--------------------+------------+-------------+--------------+---------> ENDING: failed, MSG_ERROR says why
 *
 * Invariants: a member owes one report for each phase sent to it (reported == false, counted in missing) and a report counts only
 * if it carries the phase and the round that were sent: what a failed checkpoint left under way is recognised by it, since rounds of
 * SUSPEND are never used twice and a member answers in order. Members that got SUSPEND always get RESUME. Nothing is committed
 * before every member has reported its image; a member that is lost before that fails the checkpoint, unless its end is explained (conduct_lost.c).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

struct stage {
	const char *name;
	uint32_t phase; /* sent on entry; PHASE_NONE: nothing is sent */
	enum fault before, after;
};

static const struct stage stages[STATE_COUNT] = {
	[STATE_IDLE] = { "running", PHASE_NONE, FAULT_NONE, FAULT_NONE },
	[STATE_AGAIN] = { "AGAIN", PHASE_NONE, FAULT_NONE, FAULT_NONE },
	[STATE_SUSPEND] = { "SUSPEND", PHASE_SUSPEND, FAULT_COORDINATOR_BEFORE_SUSPEND, FAULT_COORDINATOR_AFTER_SUSPEND },
	[STATE_QUIESCE] = { "QUIESCE", PHASE_QUIESCE, FAULT_COORDINATOR_BEFORE_QUIESCE, FAULT_COORDINATOR_AFTER_QUIESCE },
	[STATE_DRAIN] = { "DRAIN", PHASE_DRAIN, FAULT_COORDINATOR_BEFORE_DRAIN, FAULT_COORDINATOR_AFTER_DRAIN },
	[STATE_WRITE] = { "WRITE", PHASE_WRITE, FAULT_COORDINATOR_BEFORE_WRITE, FAULT_COORDINATOR_AFTER_WRITE },
	[STATE_COMMIT] = { "COMMIT", PHASE_NONE, FAULT_NONE, FAULT_NONE },
	[STATE_RESTORE] = { "RESTORE", PHASE_NONE, FAULT_NONE, FAULT_NONE },
	[STATE_RECREATE] = { "RECREATE", PHASE_RECREATE, FAULT_COORDINATOR_BEFORE_RECREATE,
			     FAULT_COORDINATOR_AFTER_RECREATE },
	[STATE_PUBLISH] = { "PUBLISH", PHASE_PUBLISH, FAULT_COORDINATOR_BEFORE_PUBLISH, FAULT_COORDINATOR_AFTER_PUBLISH },
	[STATE_RECONNECT] = { "RECONNECT", PHASE_RECONNECT, FAULT_COORDINATOR_BEFORE_RECONNECT,
			      FAULT_COORDINATOR_AFTER_RECONNECT },
	[STATE_REFILL] = { "REFILL", PHASE_REFILL, FAULT_COORDINATOR_BEFORE_REFILL, FAULT_COORDINATOR_AFTER_REFILL },
	[STATE_ENDING] = { "ending", PHASE_NONE, FAULT_NONE, FAULT_NONE },
};

#define TO(s) (1u << STATE_##s)
static const unsigned int moves[STATE_COUNT] = {
	[STATE_IDLE] = TO(SUSPEND) | TO(ENDING),
	[STATE_AGAIN] = TO(SUSPEND) | TO(IDLE) | TO(ENDING),
	[STATE_SUSPEND] = TO(QUIESCE) | TO(AGAIN) | TO(IDLE) | TO(ENDING),
	[STATE_QUIESCE] = TO(DRAIN) | TO(AGAIN) | TO(IDLE) | TO(ENDING),
	[STATE_DRAIN] = TO(DRAIN) | TO(WRITE) | TO(AGAIN) | TO(IDLE) | TO(ENDING),
	[STATE_WRITE] = TO(COMMIT) | TO(AGAIN) | TO(IDLE) | TO(ENDING),
	[STATE_COMMIT] = TO(IDLE) | TO(ENDING),
	[STATE_RESTORE] = TO(RECREATE) | TO(ENDING),
	[STATE_RECREATE] = TO(PUBLISH) | TO(ENDING),
	[STATE_PUBLISH] = TO(RECONNECT) | TO(ENDING),
	[STATE_RECONNECT] = TO(REFILL) | TO(ENDING),
	[STATE_REFILL] = TO(IDLE) | TO(ENDING),
	[STATE_ENDING] = 0,
};

uint32_t conduct_phase(enum state s)
{
	return s == STATE_COMMIT ? PHASE_COMMIT : s == STATE_RESTORE ? PHASE_RESTORE : stages[s].phase;
}

const char *conduct_state_name(enum state s)
{
	return stages[s].name;
}

/* The state under way has taken so long. */
static void conduct_clock(struct coordinator *c)
{
	uint64_t now = raw_now_ns();

	if (c->state == STATE_IDLE || c->state == STATE_AGAIN) /* an attempt begins */
		memset(c->phase_ns, 0, sizeof(c->phase_ns));
	else
		c->phase_ns[c->state] += now - c->state_since_ns;
	c->state_since_ns = now;
}

void conduct_move(struct coordinator *c, enum state to)
{
	if (!(moves[c->state] & (1u << to))) {
		log_error("move from %s to %s is not in the table", stages[c->state].name, stages[to].name);
		abort();
	}
	log_info("%s -> %s", stages[c->state].name, stages[to].name);
	conduct_clock(c);
	c->state = to;
	uv_timer_stop(&c->retry_timer);
	if (to == STATE_IDLE || to == STATE_AGAIN || to == STATE_ENDING)
		uv_timer_stop(&c->phase_timer);
	if (to == STATE_IDLE || to == STATE_ENDING)
		conduct_lost_clear(c);
	if (to == STATE_IDLE)
		run_check_leave(c); /* the last may have gone meanwhile */
}

bool conduct_is_checkpoint(enum state s)
{
	return s >= STATE_AGAIN && s <= STATE_COMMIT;
}

static bool conduct_is_restart(enum state s)
{
	return s >= STATE_RESTORE && s <= STATE_REFILL;
}

static void conduct_send_phase(struct member *m, uint32_t phase, uint32_t round, int reason)
{
	struct coordinator *c = m->conn->c;
	struct msg_phase p = { .phase = phase, .round = round, .checkpoint = c->store.next, .reason = reason,
			       .files = c->files, .external = c->external, .text = c->text, .attempt = c->attempt };

	if (phase == PHASE_WRITE) {
		if (c->host_count > 1)
			snprintf(m->image, sizeof(m->image), "%u-%u.core", m->host, m->pid);
		else
			snprintf(m->image, sizeof(m->image), "%u.core", m->pid);
		snprintf(p.directory, sizeof(p.directory), "%.511s", c->store.partial); /* store_open() made sure */
		snprintf(p.name, sizeof(p.name), "%s", m->image);
	}
	m->phase = phase;
	m->round = round;
	m->reported = false;
	if (phase != PHASE_DRAIN || !round)
		m->more = false;
	connection_send(m->conn, MSG_PHASE, &p, sizeof(p), NULL, 0);
}

void conduct_suspend_member(struct member *m)
{
	struct coordinator *c = m->conn->c;

	m->suspended = true;
	m->stands = false;
	c->missing++;
	c->arrivals++;
	conduct_send_phase(m, PHASE_SUSPEND, ++c->suspend_round, 0);
}

/* RESUME to all that were suspended, and the names end with it. */
void conduct_resume_all(struct coordinator *c, int reason)
{
	struct member *m;

	fault_point(FAULT_COORDINATOR_BEFORE_RESUME);
	list_each(m, &c->members, node) {
		bool stand = c->state == STATE_AGAIN && m->outwaits;

		if (m->suspended || m->stands)
			conduct_send_phase(m, PHASE_RESUME, stand ? RESUME_STAND : RESUME_GO, reason);
		m->suspended = m->outwaits = false;
		m->stands = stand;
	}
	names_clear(c);
	member_welcome_waiting(c);
	fault_point(FAULT_COORDINATOR_AFTER_RESUME);
}

/* Enters a state whose phase is sent to every member. */
void conduct_enter(struct coordinator *c, enum state to, uint32_t round)
{
	struct member *m;

	conduct_move(c, to);
	c->round = round;
	c->missing = 0;
	if (round == 0 && fault_point(stages[to].before) < 0) {
		conduct_fail(c, -EIO, "fault point before %s", stages[to].name);
		return;
	}
	list_each(m, &c->members, node) {
		if (m->waiting)
			continue;
		if (to == STATE_SUSPEND) {
			conduct_suspend_member(m);
			continue;
		}
		c->missing++;
		conduct_send_phase(m, stages[to].phase, round, 0);
	}
	if (round == 0)
		uv_timer_start(&c->phase_timer, conduct_timeout, c->options->timeout_ms, 0);
	if (round == 0 && fault_point(stages[to].after) < 0)
		conduct_fail(c, -EIO, "fault point after %s", stages[to].name);
}

static void conduct_finish(struct coordinator *c, int error)
{
	conduct_outcome(c, error);
	uv_timer_stop(&c->progress_timer);
	uv_timer_stop(&c->look_timer);
	command_results(c);
}

static void conduct_fail_restart(struct coordinator *c, int error, const char *text)
{
	struct member *m;

	c->restart_error = error;
	c->exit_error = error;
	snprintf(c->restart_text, sizeof(c->restart_text), "%s", text);
	c->restart_over = true;
	conduct_move(c, STATE_ENDING);
	list_each(m, &c->members, node) {
		connection_send_error(m->conn, error, text);
		connection_shutdown(m->conn);
	}
	command_restart_result(c);
	run_check_leave(c);
}

void conduct_fail(struct coordinator *c, int error, const char *fmt, ...)
{
	char text[sizeof(c->last.text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (conduct_is_restart(c->state)) {
		log_error("restart failed: %s", text);
		conduct_fail_restart(c, error, text);
		return;
	}
	if (!conduct_is_checkpoint(c->state))
		return;
	log_warn("checkpoint failed in %s, attempt %u: %s", stages[c->state].name, c->attempts, text);
	if (c->state == STATE_AGAIN)
		c->started_ns = raw_now_ns(); /* nobody stands */
	conduct_take_back(c, STATE_IDLE, error, text);
	conduct_finish(c, error);
	conduct_request(c);
}

/* ---- the phases ---- */

void conduct_retry(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, retry_timer);

	if (c->state == STATE_AGAIN)
		conduct_attempt(c);
	else if (c->state == STATE_DRAIN)
		conduct_enter(c, STATE_DRAIN, c->round + 1);
	else if (c->state == STATE_SUSPEND && !c->missing)
		conduct_ask_children(c);
	conduct_check(c);
}

static void conduct_commit(struct coordinator *c)
{
	bool stop = c->flags & MSG_CHECKPOINT_STOP;
	int r;

	conduct_move(c, STATE_COMMIT);
	conduct_sum(c);
	r = store_commit(c);
	if (r < 0)
		return; /* it said why, and the job runs again */
	snprintf(c->last.path, sizeof(c->last.path), "%s", c->store.final);
	c->last.text[0] = 0;
	c->committed = true;
	c->last.number = c->store.next;
	if (stop)
		conduct_end(c, c->flags & MSG_CHECKPOINT_REQUEUE ? MSG_ENDING_REQUEUED : MSG_ENDING_STOPPED);
	else
		conduct_move(c, STATE_IDLE);
	if (!stop)
		conduct_resume_all(c, 0);
	conduct_finish(c, 0);
	c->store.next++;
	store_prune(c);
	conduct_request(c);
}

static void conduct_drained(struct coordinator *c)
{
	int r;

	if (conduct_any_more(c)) {
		/* What is on its way needs time, not questions: 0, 0, 1, 1, 2, 2, .. ms, at most 10. */
		uv_timer_start(&c->retry_timer, conduct_retry, c->round < 20 ? c->round / 2 : 10, 0);
		return;
	}
	r = store_begin(&c->store);
	if (r < 0) {
		conduct_fail(c, r, "checkpoint directory %s: %s", c->store.dir, strerror(-r));
		return;
	}
	r = directories_begin(c);
	if (r < 0)
		conduct_fail(c, r, "directories cannot be saved: %s", strerror(-r));
	else
		conduct_enter(c, STATE_WRITE, 0);
}

static void conduct_restarted(struct coordinator *c)
{
	c->restart_over = true;
	c->restart_ns = raw_now_ns() - c->started_ns;
	conduct_move(c, STATE_IDLE);
	memcpy(c->restart_phase_ns, c->phase_ns, sizeof(c->phase_ns));
	conduct_resume_all(c, 0);
	command_restart_result(c);
	conduct_request(c);
}

static void conduct_advance(struct coordinator *c)
{
	int r = names_answer(c);

	if (r < 0) {
		conduct_fail(c, r, "names could not be answered: %s", strerror(-r));
		return;
	}
	switch (c->state) {
	case STATE_SUSPEND: conduct_enter(c, STATE_QUIESCE, 0); break;
	case STATE_QUIESCE: conduct_enter(c, STATE_DRAIN, 0); break;
	case STATE_DRAIN: conduct_drained(c); break;
	case STATE_WRITE: conduct_commit(c); break;
	case STATE_RECREATE: conduct_enter(c, STATE_PUBLISH, 0); break;
	case STATE_PUBLISH: conduct_enter(c, STATE_RECONNECT, 0); break;
	case STATE_RECONNECT: conduct_enter(c, STATE_REFILL, 0); break;
	case STATE_REFILL: conduct_restarted(c); break;
	default: break;
	}
}

/* Goes on if the phase is done. Called whenever somebody reported, came, left or became known. */
void conduct_check(struct coordinator *c)
{
	if (conduct_check_outwaited(c))
		return;
	switch (c->state) {
	case STATE_AGAIN:
		conduct_check_again(c);
		return;
	case STATE_SUSPEND:
		if (!c->missing && !uv_is_active((uv_handle_t *)&c->retry_timer) && conduct_suspend_closed(c))
			break;
		return;
	case STATE_DRAIN:
		if (c->missing || uv_is_active((uv_handle_t *)&c->retry_timer))
			return;
		break;
	case STATE_RESTORE:
		if (c->expected_missing)
			return;
		c->started_ns = raw_now_ns();
		conduct_enter(c, STATE_RECREATE, 0);
		return;
	case STATE_WRITE:
		if (c->missing || directories_busy(c))
			return;
		break;
	case STATE_QUIESCE:
	case STATE_RECREATE:
	case STATE_PUBLISH:
	case STATE_RECONNECT:
	case STATE_REFILL:
		if (c->missing)
			return;
		break;
	default:
		return;
	}
	if (!c->member_count && conduct_is_checkpoint(c->state))
		conduct_fail(c, -ESRCH, "the job has no process: all have ended, or none has come yet");
	else
		conduct_advance(c);
}

/* Who watches is told first: by the time that it sees its process dead, it can know why. */
void conduct_end(struct coordinator *c, uint32_t reason)
{
	if (c->state == STATE_ENDING)
		return;
	conduct_move(c, STATE_ENDING);
	c->ending = reason;
	command_tell_ending(c);
	member_kill_all(c);
	uv_timer_stop(&c->leave_timer); /* nobody comes any more */
	run_check_leave(c);
}
