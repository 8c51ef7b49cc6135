/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attempts. What is asked for is a checkpoint; what a member says no to with -EAGAIN is an attempt: a queue that its reader is about to empty, a
 * connection that is being set up. The job goes on, and a moment later everything is tried once more, from SUSPEND. Owns coordinator.attempts, how many
 * there were since IDLE, and retry_timer in AGAIN.
 *
 * -EINPROGRESS is for what takes longer: a process on its way to another host (conduct_silent.c), which may be served by a process that stands still; one that stands for its debugger where it cannot be
 * let go (agent/tracer_tracee.c). After a second, in which a login can end, and a debugger goes on.
 *
 * -EALREADY is for what another process has to do first: a server is to accept who has sent it something. Where many ask it, some always wait, so in every second attempt all are heard out, and those who say so stand
 * until the next one (RESUME_STAND), while the others run. Not in each: what one waits for may be its own doing after all, or the other's, who waits for it.
 *
 * After 10, 20, 40, .. 320 ms: a reader that is only to be scheduled has read in ten, one on a busy machine in some hundreds. What is there after the
 * 7th, 0.6 s later, is no affair of a moment, and each attempt makes the job stand for as long as a phase or two take. Each request has its own count
 * (conn.attempts, coordinator.interval_attempts): one that comes late has its 7, and costs the earlier ones nothing, who are answered after theirs.
 *
 * In AGAIN the job runs as in IDLE, and this can come:
 *
 *   the timer                    SUSPEND, for all who wait then
 *   a request, the interval      it waits for the timer: its cut is after it, so it has part in the next attempt
 *   a command goes               its wish goes with it (--stop, too), for nothing of it is under way; was it the last: IDLE, -ECANCELED
 *   a process comes              welcomed at once
 *   a process ends by itself     as in IDLE; was it the last, and none is being created: IDLE, -ESRCH, now and not at the timer
 *   a process is lost            its parent has to explain it in the next SUSPEND (conduct_lost.c), which is also how one that was lost in QUIESCE, DRAIN or WRITE comes here
 *   a report, names, progress    of the attempt that was refused: not counted, and names are not kept (conduct_takes_names()). One that comes as late
 *                                as in the next SUSPEND carries another phase or round, and comes before its sender's answer to that
 *   MSG_QUIT, MSG_FAILED         ENDING
 *   SIGTERM                      IDLE, -ECANCELED
 *
 * A restart knows no AGAIN: what a member says no to there is the end. Nor do refusals of our own: who is stopped by a signal stays so.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "coordinator/internal.h"
#include "protocol/external.h"
#include "protocol/files.h"
#include "protocol/text.h"

#define AGAIN_MS 10u
#define AGAIN_DOUBLINGS 5u
#define AGAIN_BUSY_MS 1000u
#define LOOK_FIRST_MS 10u /* who runs has mostly answered by then */
#define LOOK_MS 200u

bool conduct_attempt(struct coordinator *c)
{
	uint32_t flags = 0, files = files_parse(c->options->files);
	struct member *m;

	if (!command_wanted(c, &flags, &files))
		return false;
	c->files = files;
	c->external = external_of(flags, external_parse(c->options->external));
	c->text = text_of(flags, text_parse(c->options->text));
	c->flags = flags;
	c->attempts++;
	c->attempt++;
	c->started_ns = raw_now_ns();
	c->foreign_since_ns = 0;
	c->last.processes = (uint32_t)c->member_count;
	names_clear(c);
	list_each(m, &c->members, node) /* a restart's members come in any order */
		m->born_here |= member_find(c, m->host, m->ppid) != NULL;
	if (!uv_is_active((uv_handle_t *)&c->progress_timer))
		uv_timer_start(&c->progress_timer, command_progress, 200, 200);
	uv_timer_start(&c->look_timer, conduct_look_at_silent, LOOK_FIRST_MS, LOOK_MS);
	conduct_enter(c, STATE_SUSPEND, 0);
	if (c->lost[0])
		conduct_fail(c, -EHOSTDOWN, "%s is lost: end the job, and restart it from its last checkpoint", c->lost);
	conduct_check(c);
	return true;
}

void conduct_outcome(struct coordinator *c, int error)
{
	struct outcome *o = &c->last;

	o->any = true;
	o->error = error;
	o->number = c->store.next;
	o->attempts = c->attempts;
	o->pause_ns = raw_now_ns() - c->started_ns;
	memcpy(o->phase_ns, c->phase_ns, sizeof(o->phase_ns));
}

/* Nothing is left of the attempt, and the job goes on. */
void conduct_take_back(struct coordinator *c, enum state to, int error, const char *text)
{
	store_abandon(c);
	c->outwaited[0] = 0;
	c->last.bytes = c->last.contents_bytes = 0;
	c->last.contents = 0;
	c->last.path[0] = 0;
	snprintf(c->last.text, sizeof(c->last.text), "%s", text);
	conduct_move(c, to);
	conduct_resume_all(c, error);
}

void conduct_request(struct coordinator *c)
{
	if (c->state != STATE_IDLE)
		return;
	c->attempts = 0;
	conduct_attempt(c);
}

bool conduct_again(struct coordinator *c, int error, const char *text)
{
	uint32_t doublings = c->attempts - 1 < AGAIN_DOUBLINGS ? c->attempts - 1 : AGAIN_DOUBLINGS;
	uint32_t ms = error == -EINPROGRESS ? AGAIN_BUSY_MS : AGAIN_MS << doublings;

	if ((error != -EAGAIN && error != -EINPROGRESS) || !conduct_is_checkpoint(c->state) || !command_waits(c, ATTEMPTS_MAX))
		return false;
	log_warn("attempt %u refused in %s: %s; another one in %u ms", c->attempts, conduct_state_name(c->state), text, ms);
	conduct_take_back(c, STATE_AGAIN, error, text);
	conduct_outcome(c, error);
	command_results(c); /* to those that have had theirs */
	uv_timer_start(&c->retry_timer, conduct_retry, ms, 0);
	return true;
}

bool conduct_check_outwaited(struct coordinator *c)
{
	char text[sizeof(c->outwaited)];

	if (!c->outwaited[0] || c->missing)
		return c->outwaited[0];
	memcpy(text, c->outwaited, sizeof(text));
	if (!conduct_again(c, -EAGAIN, text))
		conduct_fail(c, -EAGAIN, "%s", text);
	return true;
}

/* All are heard out: there may be more of them. */
bool conduct_outwait(struct member *m, const char *text)
{
	struct coordinator *c = m->conn->c;

	if (c->attempts % 2)
		return false;
	m->outwaits = true;
	snprintf(c->outwaited, sizeof(c->outwaited), "%s", text);
	return conduct_check_outwaited(c);
}

void conduct_check_again(struct coordinator *c)
{
	bool nobody = !c->member_count && !c->half_open;

	if (nobody && conduct_lost_none(c))
		conduct_fail(c, -ESRCH, "the job has no process: all have ended before another attempt");
	else if (!nobody && !command_waits(c, UINT32_MAX))
		conduct_fail(c, -ECANCELED, "nobody waits for it any more");
}
