/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of SUSPEND: nobody may slip away. When all members have reported, a process can still be missing in two ways: it is being
 * created (then its connection is here, half-open, because the wrapper connects before it forks), or it was created behind our back, by
 * a call that is not wrapped or a program that cannot be preloaded (then its parent lists it as a child). The first one is waited for; the
 * second one is asked after until it has registered or ended, and refused by name when it does neither. Who has left is waited for until it is through (leaving.c). Who was there and is lost has to be explained (conduct_lost.c). Last of all the relays of other hosts are asked
 * whether they have everybody (relayed.c).
 */
#include <errno.h>

#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

/* How long a child may be unknown before it counts as one that is not under control (it may be between fork and main()), and what has left may take. */
#define CONDUCT_FOREIGN_GRACE_NS 5000000000u

/* A child of @m that is not a member, or 0. */
static uint32_t conduct_foreign_child(struct member *m)
{
	for (uint32_t i = 0; i < m->children_count; i++)
		if (!member_find(m->conn->c, m->host, m->children[i]))
			return m->children[i];
	return 0;
}

static struct member *conduct_foreign_parent(struct coordinator *c)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (!m->waiting && conduct_foreign_child(m))
			return m;
	return NULL;
}

static uint64_t conduct_foreign_grace(const struct coordinator *c)
{
	uint64_t half = c->options->timeout_ms * 500000ull;

	return half < CONDUCT_FOREIGN_GRACE_NS ? half : CONDUCT_FOREIGN_GRACE_NS;
}

/* SUSPEND again to those with an unknown child: it may have ended meanwhile. */
void conduct_ask_children(struct coordinator *c)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (!m->waiting && conduct_foreign_child(m))
			conduct_suspend_member(m);
}

static void conduct_unclosed(struct coordinator *c, struct member *parent, pid_t leaver)
{
	char name[128];

	if (!parent) {
		conduct_fail(c, -EBUSY, "process %d of the job has ended, and the kernel is still freeing what it held: take a checkpoint when it is gone", (int)leaver);
		return;
	}
	member_name(parent, name, sizeof(name));
	conduct_fail(c, -ENOTSUP, "process %u, a child of %s, is not under checkpoint control (statically linked, "
		     "setuid, or started without LD_PRELOAD?): end it, or start it under fermata launch",
		     conduct_foreign_child(parent), name);
}

/* 1 when SUSPEND can be closed: nobody is lost, no connection is half-open, every living child is a member, and whoever has left is gone. */
bool conduct_suspend_closed(struct coordinator *c)
{
	struct member *parent;
	pid_t leaver;

	if (!accept_all(c) || c->half_open) {
		c->foreign_since_ns = 0;
		return false;
	}
	parent = conduct_foreign_parent(c);
	leaver = parent ? 0 : leaving_one(c);
	if (!parent && !leaver)
		return !c->missing && conduct_lost_none(c) && relayed_synced(c);
	if (!c->foreign_since_ns) {
		c->foreign_since_ns = raw_now_ns();
		c->retries = 0;
	}
	if (raw_now_ns() - c->foreign_since_ns > conduct_foreign_grace(c))
		conduct_unclosed(c, parent, leaver);
	else
		uv_timer_start(&c->retry_timer, conduct_retry, 5u << (c->retries < 6 ? c->retries++ : 6), 0);
	return false;
}
