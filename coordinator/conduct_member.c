/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What members do, for the conductor: they come, report a phase, make progress, leave. Owns which report counts, and whether a loss
 * fails what is under way; conduct.c's invariants hold here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/internal.h"

static void conduct_joined_restarted(struct member *m)
{
	struct coordinator *c = m->conn->c;
	struct expected *e = manifest_expected(c, c->hosts[m->host], m->pid);

	if (c->state != STATE_RESTORE || !e) {
		connection_send_error(m->conn, -EINVAL, "no restart that waits for this process is under way");
		connection_close(m->conn);
		return;
	}
	/* What it says of itself now is the restorer's. */
	memcpy(m->comm, e->comm, sizeof(m->comm));
	memcpy(m->exe, e->exe, sizeof(m->exe));
	e->come = true;
	c->expected_missing--;
	m->suspended = true;
	member_welcome(m);
	conduct_check(c);
}

void conduct_joined(struct member *m, bool restarted)
{
	struct coordinator *c = m->conn->c;

	if (restarted) {
		conduct_joined_restarted(m);
		return;
	}
	m->waiting = c->state != STATE_IDLE && c->state != STATE_AGAIN && c->state != STATE_SUSPEND;
	if (m->waiting)
		return;
	member_welcome(m);
	if (c->state == STATE_SUSPEND)
		conduct_suspend_member(m);
}

static bool conduct_take_children(struct member *m, const struct decode_done *done)
{
	free(m->children);
	m->children = calloc(done->head.children + 1, sizeof(*m->children));
	m->children_count = m->children ? done->head.children : 0;
	if (m->children)
		memcpy(m->children, done->children, m->children_count * sizeof(*m->children));
	return m->children;
}

void conduct_report(struct member *m, const struct decode_done *done)
{
	struct coordinator *c = m->conn->c;
	char name[128], text[sizeof(c->last.text)];

	if (m->waiting || m->reported || m->phase == PHASE_NONE || c->state == STATE_IDLE || c->state == STATE_AGAIN || c->state == STATE_ENDING ||
	    done->head.phase != m->phase || done->head.round != m->round)
		return;
	m->reported = true;
	m->newborn = false;
	c->missing--;
	if (done->head.status < 0) {
		int len = (int)done->head.text_length, error = done->head.status;

		member_name(m, name, sizeof(name));
		snprintf(text, sizeof(text), "%s: %.*s", name, len ? len : 64, len ? done->text : strerror(-done->head.status));
		if (error == -EALREADY && conduct_outwait(m, text))
			return;
		error = error == -EALREADY ? -EAGAIN : error;
		if (!conduct_again(c, error, text))
			conduct_fail(c, error, "%s", text);
		return;
	}
	m->more = done->head.status == PHASE_STATUS_MORE;
	snprintf(m->waits, sizeof(m->waits), "%.*s", m->more ? (int)done->head.text_length : 0, done->text);
	if (c->state == STATE_SUSPEND && !conduct_take_children(m, done)) {
		conduct_fail(c, -ENOMEM, "no memory to note the children of a process");
		return;
	}
	if (c->state == STATE_WRITE) {
		m->bytes = done->head.bytes;
		m->file_size = done->head.file_size;
		m->contents = done->head.contents;
		m->contents_bytes = done->head.contents_bytes;
		memcpy(m->digest, done->head.digest, sizeof(m->digest));
	}
	conduct_check(c);
}

/* A member answers in order: what it sends before its report of SUSPEND is left of an attempt that has failed. */
bool conduct_takes_names(const struct member *m)
{
	enum state s = m->conn->c->state;

	return s != STATE_IDLE && s != STATE_AGAIN && (s != STATE_SUSPEND || m->reported);
}

bool conduct_any_more(struct coordinator *c)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (!m->waiting && m->more)
			return true;
	return false;
}

/* What all have written. */
void conduct_sum(struct coordinator *c)
{
	struct member *m;

	c->last.bytes = c->last.contents_bytes = 0;
	c->last.processes = c->last.contents = 0;
	list_each(m, &c->members, node) {
		if (m->waiting)
			continue;
		c->last.bytes += m->bytes;
		c->last.contents_bytes += m->contents_bytes;
		c->last.contents += m->contents;
		c->last.processes++;
	}
	directories_sum(c, &c->last.contents, &c->last.contents_bytes);
}

/* Writing takes as long as there is data, and so does putting back files without names: the time-out counts from the last byte that anybody wrote. */
void conduct_progress(struct member *m, const struct msg_progress *p)
{
	struct coordinator *c = m->conn->c;

	if (c->state != STATE_WRITE && c->state != STATE_RECREATE)
		return;
	if (p->bytes_done > m->bytes_done)
		uv_timer_start(&c->phase_timer, conduct_timeout, c->options->timeout_ms, 0);
	m->bytes_done = p->bytes_done;
	m->bytes_total = p->bytes_total;
}

/* So does reading. */
void conduct_restoring(struct coordinator *c)
{
	if (c->state == STATE_RESTORE)
		uv_timer_start(&c->phase_timer, conduct_timeout, c->options->timeout_ms, 0);
}

void conduct_left(struct member *m)
{
	struct coordinator *c = m->conn->c;
	bool ends = m->exiting || m->newborn;
	char name[128];

	if (!c->member_count && !conduct_is_checkpoint(c->state))
		store_release(&c->store);
	if (c->state == STATE_AGAIN && !ends)
		conduct_lost(m);
	if (!m->suspended || c->state == STATE_IDLE || c->state == STATE_ENDING)
		return;
	if (!m->reported)
		c->missing--;
	if (!conduct_is_checkpoint(c->state)) {
		member_name(m, name, sizeof(name));
		conduct_fail(c, -ECONNRESET, "%s was lost in %s", name, conduct_state_name(c->state));
		return;
	}
	/* Before its report of SUSPEND it was running: it has ended as it would have ended a moment before. A newborn may before it can say so, and is in no checkpoint. */
	if (c->state != STATE_SUSPEND || m->reported || !ends)
		conduct_lost(m);
	conduct_check(c);
}
