/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is needed so that every process comes back as its parent's child, in its session and in its group: nodes, of the processes, of their children that have ended and are not waited for, and of leaders that had ended
 * and are gone. These last are made again for a while: a session, or a group, begins with a process of its number, and lives on without it.
 *
 * Of a session is who is born into it, or leads it. Who forks a node (its maker) follows from that:
 *
 *   its parent                              if that is in the session: as most are
 *   its parent, before it leads its own     if that came from the session
 *   the session's leader, by a carrier      if its parent was that of an ancestor, and took an orphan: the carrier ends, and the node comes to its parent again, who is the only one
 *                                           then that takes orphans (PR_SET_CHILD_SUBREAPER; init always does)
 *
 * The last way is open where the leader is below the parent, as it was when the node was born: sessions and parents pass on downwards alone. Who leads a session of its own may have been born into any, so it is the one that
 * its first children need. What is left, as where a parent has given up to take orphans since, comes back in its parent's session, which is said.
 *
 * Carried nodes are made one after the other (restart.carried), each after its parent and its maker.
 *
 * A session that a terminal window began has its terminal from outside, and a terminal is of one session: where `fermata restart` has one, who led such a session is in that of `fermata restart`, as a shell's job is, and all others
 * of the session are: the terminal matters more to them than the number. Elsewhere it leads its session again, without a terminal.
 *
 * Owns the nodes. Numbers of sessions and groups that are not the job's are 0: those of `fermata restart`.
 */
#include <err.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "cli/restart.h"

#define ANY UINT32_MAX /* session */

struct restart_node *restart_family_find(const struct restart *r, uint32_t pid)
{
	for (size_t i = 0; i < r->node_count; i++)
		if (r->nodes[i].pid == pid)
			return &r->nodes[i];
	return NULL;
}

static struct restart_node *leader_of(const struct restart *r, uint32_t sid)
{
	struct restart_node *n = sid ? restart_family_find(r, sid) : NULL;

	return n && n->sid == sid ? n : NULL;
}

/* ---- who there is ---- */

/* @id, of a session or group of @p or of its child: not known, or of whoever began the job and not of a leader that we have. */
static uint32_t inside(const struct restart *r, const struct image_process *p, uint32_t id, uint32_t outer)
{
	return restart_family_find(r, id) || (p->outer_known && id != outer) ? id : 0;
}

static void add_process(struct restart *r, struct restart_process *p)
{
	const struct image_group *groups;
	size_t dead;
	const struct image_zombie *z = image_get_zombies(p->image, &dead, &groups);

	r->nodes[r->node_count++] = (struct restart_node){ .kind = NODE_PROCESS, .process = p, .owner = p, .pid = p->info->pid, .pgid = p->info->pgid, .sid = p->info->sid };
	for (size_t i = 0; i < dead; i++)
		r->nodes[r->node_count++] = (struct restart_node){ .kind = NODE_ENDED, .owner = p, .pid = z[i].pid, .status = z[i].status,
								  .pgid = groups ? groups[i].pgid : p->info->pgid, .sid = groups ? groups[i].sid : p->info->sid };
}

/* Whose controlling terminal led out of the job. */
static bool led_terminal(const struct restart_node *n)
{
	const uint32_t terminal = n->process ? n->process->info->terminal : 0;

	return n->pid == n->sid && terminal && terminal != UINT32_MAX && !restart_ptys_leads(n->process);
}

static void leave_sessions_of_windows(struct restart *r)
{
	if (r->background || tcgetsid(STDIN_FILENO) != getsid(0))
		return;
	for (size_t i = 0; i < r->node_count; i++) {
		const uint32_t sid = r->nodes[i].sid;
		const bool leave = led_terminal(&r->nodes[i]);

		for (size_t k = 0; leave && k < r->node_count; k++)
			if (r->nodes[k].sid == sid)
				r->nodes[k].sid = 0;
	}
}

/* A node each at first, and a leader of a session and one of a group for each of these at most. */
static bool add_processes(struct restart *r)
{
	size_t count = 0, dead;

	for (size_t i = 0; i < r->count; i++) {
		image_get_zombies(r->processes[i].image, &dead, NULL);
		count += 1 + dead;
	}
	r->nodes = calloc(3 * count + 1, sizeof(*r->nodes));
	r->carried = calloc(3 * count + 1, sizeof(struct restart_node *));
	for (size_t i = 0; r->nodes && i < r->count; i++)
		add_process(r, &r->processes[i]);
	return r->nodes && r->carried;
}

static size_t depth_of(const struct restart *r, const struct restart_node *n)
{
	size_t depth = 0;

	for (; n && depth <= r->node_count; n = n->parent)
		depth++;
	return depth;
}

static int link_parents(struct restart *r)
{
	for (size_t i = 0; i < r->node_count; i++) {
		struct restart_node *n = &r->nodes[i];
		const struct image_process *p = n->owner->info;

		n->pgid = inside(r, p, n->pgid, p->outer_pgid);
		n->sid = inside(r, p, n->sid, p->outer_sid);
		n->parent = restart_family_find(r, n->kind == NODE_PROCESS ? p->ppid : p->pid);
	}
	for (size_t i = 0; i < r->node_count; i++)
		if (depth_of(r, &r->nodes[i]) > r->node_count) {
			warnx("%s: process %u is an ancestor of its own", r->nodes[i].owner->path, r->nodes[i].pid);
			return CLI_DAMAGED;
		}
	return 0;
}

/* ---- leaders that are gone ---- */

/* Below as many as possible of those that have taken its orphans. */
static struct restart_node *parent_for(const struct restart *r, uint32_t sid)
{
	struct restart_node *best = NULL;

	for (size_t i = 0; i < r->node_count; i++) {
		struct restart_node *p = r->nodes[i].parent;

		if (r->nodes[i].sid == sid && p && p->sid != sid && depth_of(r, p) > depth_of(r, best))
			best = p;
	}
	return best;
}

static void add_leaders(struct restart *r)
{
	const size_t count = r->node_count;

	for (size_t i = 0; i < count; i++) {
		const uint32_t sid = r->nodes[i].sid;

		if (sid && !restart_family_find(r, sid))
			r->nodes[r->node_count++] = (struct restart_node){ .kind = NODE_LEADER, .owner = r->nodes[i].owner, .pid = sid, .pgid = sid, .sid = sid, .parent = parent_for(r, sid) };
	}
	for (size_t i = 0; i < count; i++) {
		const uint32_t pgid = r->nodes[i].pgid, sid = r->nodes[i].sid;

		if (pgid && !restart_family_find(r, pgid))
			r->nodes[r->node_count++] = (struct restart_node){ .kind = NODE_LEADER, .owner = r->nodes[i].owner, .pid = pgid, .pgid = pgid, .sid = sid, .parent = leader_of(r, sid) };
	}
}

/* Who has the number of a group that it has left leads it until all are there. */
static void find_groups(struct restart *r)
{
	for (size_t i = 0; i < r->node_count; i++) {
		struct restart_node *leader = r->nodes[i].pgid ? restart_family_find(r, r->nodes[i].pgid) : NULL;

		if (leader)
			leader->leads = true;
	}
	for (size_t i = 0; i < r->node_count; i++)
		r->moves |= r->nodes[i].moves = r->nodes[i].leads && r->nodes[i].pgid != r->nodes[i].pid;
}

/* ---- who makes whom ---- */

static bool is_below(const struct restart_node *n, const struct restart_node *ancestor)
{
	do
		n = n->parent;
	while (n && n != ancestor);
	return n == ancestor;
}

static bool can_be_carried(const struct restart *r, const struct restart_node *parent, uint32_t sid)
{
	const struct restart_node *leader = leader_of(r, sid);

	return leader && is_below(leader, parent);
}

/* The session that it is born into. */
static uint32_t birth_of(const struct restart *r, struct restart_node *n)
{
	if (n->birth_known)
		return n->birth;
	n->birth_known = true;
	n->birth = n->sid == n->pid ? ANY : n->sid;
	for (size_t i = 0; i < r->node_count && n->birth == ANY; i++) {
		const uint32_t b = r->nodes[i].parent == n ? birth_of(r, &r->nodes[i]) : ANY;

		if (b != ANY && b != n->sid && !can_be_carried(r, n, b))
			n->birth = b;
	}
	return n->birth;
}

static void find_maker(const struct restart *r, struct restart_node *n)
{
	struct restart_node *p = n->parent;
	const uint32_t birth = birth_of(r, n);

	n->maker = p;
	if (birth == ANY || birth == (p ? p->sid : 0))
		return;
	if (p && p->sid == p->pid && birth == birth_of(r, p)) {
		n->before = true;
	} else if (can_be_carried(r, p, birth)) {
		n->maker = leader_of(r, birth);
		n->carried = true;
	} else {
		n->strays = true;
	}
}

/* The order of those that are carried. What a damaged image may say: one that waits for itself is not carried. */
static void put_in_order(struct restart *r)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < r->node_count; i++) {
			struct restart_node *n = &r->nodes[i];

			if (n->in_order || (n->parent && !n->parent->in_order) || (n->maker && !n->maker->in_order))
				continue;
			n->in_order = more = true;
			if (n->carried)
				r->carried[r->carried_count++] = n;
		}
		for (size_t i = 0; i < r->node_count && !more; i++)
			if (r->nodes[i].carried && !r->nodes[i].in_order) {
				r->nodes[i].carried = false;
				r->nodes[i].maker = r->nodes[i].parent;
				r->nodes[i].strays = more = true;
			}
	}
}

int restart_family_create(struct restart *r)
{
	int code;

	if (!add_processes(r)) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	code = link_parents(r);
	if (code)
		return code;
	leave_sessions_of_windows(r);
	add_leaders(r);
	find_groups(r);
	for (size_t i = 0; i < r->node_count; i++)
		find_maker(r, &r->nodes[i]);
	put_in_order(r);
	for (size_t i = 0; i < r->node_count; i++)
		if (r->nodes[i].strays && r->nodes[i].kind == NODE_PROCESS)
			warnx("process %u cannot have its session back, and has that of its parent", r->nodes[i].pid);
	return 0;
}
