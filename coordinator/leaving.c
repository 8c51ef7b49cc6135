/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes of this host whose connection has ended, and which the kernel has not brought to their end. On its way out (do_exit) a process lets go of its memory, then of its descriptors in one go, and then its children get
 * another parent and its own is told; where what it held takes long to free, a device's queues and pinned memory, say, that lasts. Meanwhile nobody counts it: its children would note it as their parent, and the end of a pipe that
 * it still has would be one out of the job. So SUSPEND is not closed before they are through, and a relay does not answer TUNNEL_SYNC. In SUSPEND all others stand, so no more come.
 *
 * Who only closes its connection, by an exec of a program without our library for one, is not on its way out.
 *
 * Owns coordinator.leaving. Nearly always a process is gone in an instant: it is not looked at before somebody asks, or there are some.
 */
#include <stdlib.h>

#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

#define LEAVING_FEW 16u

struct leaver {
	struct list node; /* of coordinator.leaving */
	pid_t pid;
};

static void leaving_forget_gone(struct coordinator *c)
{
	struct leaver *l;

	list_each_safe(l, &c->leaving, node) {
		if (raw_process_is_ending(l->pid))
			continue;
		list_del(&l->node);
		c->leaving_count--;
		free(l);
	}
}

void leaving_note(struct conn *k)
{
	struct coordinator *c = k->c;
	struct leaver *l = k->relay || k->network || k->sender <= 1 ? NULL : calloc(1, sizeof(*l));

	if (!l)
		return;
	l->pid = k->sender;
	list_add_tail(&c->leaving, &l->node);
	if (++c->leaving_count > LEAVING_FEW)
		leaving_forget_gone(c);
}

pid_t leaving_one(struct coordinator *c)
{
	leaving_forget_gone(c);
	return list_empty(&c->leaving) ? 0 : container_of(c->leaving.next, struct leaver, node)->pid;
}

void leaving_end(struct coordinator *c)
{
	struct leaver *l;

	list_each_safe(l, &c->leaving, node)
		free(l);
}
