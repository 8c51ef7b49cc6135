/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members that are lost in a checkpoint: they had not said that they end. One may have ended as its job wants it to, by SIGPIPE or by a signal that its parent has sent: then it has ended as it would have a
 * moment before, and the checkpoint is without it. Or it has crashed and took its work with it, and a checkpoint without it must not replace one that has it. Its parent knows.
 *
 * From QUIESCE to WRITE nobody runs who could have sent a signal, but who was sent one before it stood may be as late as that: on a busy machine the kernel lets it die when a processor is free, and it has
 * answered meanwhile. The attempt is over, then, and the parent is heard in the next one.
 *
 * Owns coordinator.losses: who was lost and is not explained. Empty outside AGAIN and SUSPEND, and SUSPEND is not closed before it is.
 *
 * What a parent says, MSG_ENDED, comes with its reports of SUSPEND and in front of its own end:
 *
 *   it comes before the end of the child's connection is seen     the child counts as one that has said that it ends
 *   after it                                                      the loss is explained, or the checkpoint fails
 *   the parent had reported before the child ended                when all have reported, it is sent SUSPEND again, once. It stands, so the child is still to be waited for, or
 *                                                                 on its way there (its connection ends first): a living child that is no member, which conduct_suspend.c asks after before
 *   the parent does not know                                      it may be on its way out of the call that has waited for the child: another attempt is to come, and it is asked then
 *   the parent had gone before, so that somebody else's child it was   all of its host are asked: who never was its parent knows nothing of it
 *   the parent was no member, or goes                             the checkpoint fails
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/internal.h"

struct loss {
	struct list node; /* of coordinator.losses */
	uint32_t host, pid, ppid;
	bool asked; /* its parent has been asked for it */
	bool orphan; /* when it was lost its first parent had gone */
	char text[160];
};

static void lost_forget(struct loss *l)
{
	list_del(&l->node);
	free(l);
}

void conduct_lost_clear(struct coordinator *c)
{
	struct loss *l;

	list_each_safe(l, &c->losses, node)
		lost_forget(l);
}

/* What others tell of a number is of an earlier process that had it: of an orphan alone anybody may have become the parent. */
static bool lost_may_be_child(const struct member *m, uint32_t host, uint32_t ppid, bool orphan)
{
	return m->host == host && (m->pid == ppid || orphan);
}

static bool lost_is_orphan(const struct member *m)
{
	return m->born_here && !member_find(m->conn->c, m->host, m->ppid);
}

static bool lost_has_parent(struct coordinator *c, const struct loss *l)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (lost_may_be_child(m, l->host, l->ppid, l->orphan))
			return true;
	return false;
}

/* Nobody has explained @l. Its parent may be on its way out of the call that has waited for it, and know a moment later. */
static void lost_again(struct coordinator *c, struct loss *l)
{
	struct loss *each;

	if (!lost_has_parent(c, l) || !conduct_again(c, -EAGAIN, l->text)) {
		conduct_fail(c, -ECONNRESET, "%s", l->text);
		return;
	}
	list_each(each, &c->losses, node)
		each->asked = false;
}

/* It was ended in SUSPEND at the latest, and its parent has told all it knew then. */
static bool lost_late(const struct coordinator *c)
{
	return c->state == STATE_QUIESCE || c->state == STATE_DRAIN || c->state == STATE_WRITE;
}

void conduct_lost(struct member *m)
{
	struct coordinator *c = m->conn->c;
	struct loss *l = m->born_here || member_find(c, m->host, m->ppid) ? calloc(1, sizeof(*l)) : NULL;
	char name[128], text[sizeof(l->text)];

	member_name(m, name, sizeof(name));
	if (c->state == STATE_AGAIN)
		snprintf(text, sizeof(text), "%s was lost before another attempt", name);
	else
		snprintf(text, sizeof(text), "%s was lost in %s", name, conduct_state_name(c->state));
	if (!l || c->state == STATE_COMMIT) {
		free(l);
		conduct_fail(c, -ECONNRESET, "%s", text);
		return;
	}
	*l = (struct loss){ .host = m->host, .pid = m->pid, .ppid = m->ppid, .orphan = lost_is_orphan(m) };
	memcpy(l->text, text, sizeof(text));
	list_add_tail(&c->losses, &l->node);
	if (lost_late(c))
		lost_again(c, l);
}

static struct loss *lost_child(const struct member *parent, uint32_t pid)
{
	struct loss *l;

	list_each(l, &parent->conn->c->losses, node)
		if (l->pid == pid && lost_may_be_child(parent, l->host, l->ppid, l->orphan))
			return l;
	return NULL;
}

/* False: the checkpoint has failed. */
static bool lost_explain(struct member *parent, const struct msg_ended *e)
{
	struct coordinator *c = parent->conn->c;
	struct member *child = member_find(c, parent->host, e->pid);
	struct loss *l = lost_child(parent, e->pid);

	if (child && e->expected == 1 && lost_may_be_child(parent, child->host, child->ppid, lost_is_orphan(child)))
		child->exiting = true;
	if (l && e->expected != 1) {
		conduct_fail(c, -ECONNRESET, "%s: signal %u (%s) has ended it", l->text, e->signal, strsignal(e->signal));
		return false;
	}
	if (l)
		lost_forget(l);
	return true;
}

void conduct_ended(struct member *parent, const uint8_t *data, size_t length)
{
	struct msg_ended e;

	for (; length >= sizeof(e); data += sizeof(e), length -= sizeof(e)) {
		memcpy(&e, data, sizeof(e));
		if (!lost_explain(parent, &e))
			return;
	}
}

/* Who may be its parent stands, unless it has just been asked for another one. */
static void lost_ask(struct coordinator *c, struct loss *l)
{
	struct member *m;

	l->asked = true;
	list_each(m, &c->members, node)
		if (m->reported && lost_may_be_child(m, l->host, l->ppid, l->orphan))
			conduct_suspend_member(m);
}

bool conduct_lost_none(struct coordinator *c)
{
	struct loss *l;

	list_each(l, &c->losses, node)
		if (l->asked || !lost_has_parent(c, l)) {
			lost_again(c, l);
			return false;
		}
	list_each(l, &c->losses, node)
		lost_ask(c, l);
	return list_empty(&c->losses);
}
