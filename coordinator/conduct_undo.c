/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way back from a checkpoint that fails. What some members are at may touch what others have, too: unread input of a terminal is taken out and put back, messages of a queue are, flags of a
 * description change for a moment. While one is at that, no other may run. So nobody gets RESUME before all have answered UNDO, which comes after the answer to the phase that each is in: who writes pages gives up,
 * the rest is short. Owns coordinator.undo, what is to be said then.
 *
 *   failed where all have answered, or in SUSPEND, which touches nothing      RESUME at once
 *   in the middle of QUIESCE, DRAIN or WRITE                                  UNDO, then RESUME
 *   a member is lost in UNDO                                                  no other attempt
 *   a member does not answer within 10 s, or has not in its phase             RESUME: the others have to go on
 *   the coordinator ends                                                      likewise
 */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/sys.h"
#include "coordinator/internal.h"

#define UNDO_MS 10000u

static void undo_note(struct coordinator *c, enum state to, int error, const char *text)
{
	c->undo.to = to;
	c->undo.error = error;
	snprintf(c->undo.text, sizeof(c->undo.text), "%s", text);
}

void conduct_undone(struct coordinator *c)
{
	if (c->state == STATE_AGAIN)
		c->started_ns = raw_now_ns(); /* nobody stands */
	store_abandon(c);
	c->last.bytes = c->last.contents_bytes = 0;
	c->last.contents = 0;
	c->last.path[0] = 0;
	snprintf(c->last.text, sizeof(c->last.text), "%s", c->undo.text);
	conduct_move(c, c->undo.to);
	conduct_resume_all(c, c->undo.error);
	if (c->state == STATE_AGAIN) {
		conduct_refused(c, c->undo.error);
		return;
	}
	conduct_finish(c, c->undo.error);
	conduct_request(c);
}

void conduct_undo(struct coordinator *c, enum state to, int error, const char *text)
{
	bool touched = c->state == STATE_QUIESCE || c->state == STATE_DRAIN || c->state == STATE_WRITE;

	if (c->state == STATE_UNDO) {
		if (c->undo.to == STATE_AGAIN)
			undo_note(c, to, error, text);
		conduct_check(c);
		return;
	}
	undo_note(c, to, error, text);
	if (!touched || !c->missing || c->overdue) {
		conduct_undone(c);
		return;
	}
	conduct_enter(c, STATE_UNDO, 0);
	uv_timer_start(&c->phase_timer, conduct_timeout, UNDO_MS, 0);
}
