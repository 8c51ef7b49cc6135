/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is told by a signal that a description can be read or written (F_SETOWN, F_SETSIG, O_ASYNC): the description's own, so its leader notes it with its record and sets it again.
 *
 * He is told again from when REFILL is over here: he, a process or thread of whatever process, is there since RECREATE, and nobody of the program runs before all are through with REFILL, so that
 * nothing it does goes untold. Another process that puts contents back behind that may have him told once more of what can be read: which is true.
 *
 * No state: the notes are in the table.
 */
#include <errno.h>

#include "agent/fd_table.h"
#include "base/log.h"
#include "base/sys.h"

void fd_owner_note(struct fd_entry *e)
{
	struct fd_owner *o = &e->owner;
	long sig;

	*o = (struct fd_owner){ .type = F_OWNER_PID };
	if (e->desc.status & O_PATH || raw_fcntl(e->desc.fd, F_GETOWN_EX, (long)&o->type))
		return;
	sig = raw_fcntl(e->desc.fd, F_GETSIG, 0);
	o->sig = sig > 0 ? (int)sig : 0;
}

static int failed(const struct fd_entry *e, long err)
{
	return fermata_fail((int)err, "the owner of fd %d (%s), %d, cannot be told of it again (errno %d)", e->desc.fd, e->desc.link, e->owner.pid, (int)-err);
}

/* An owner that has ended is nobody's. */
int fd_owner_restore(const struct fd_entry *e)
{
	const struct fd_owner *o = &e->owner;
	long r = o->sig ? raw_fcntl(e->desc.fd, F_SETSIG, o->sig) : 0;

	if (o->pid && !r)
		r = raw_fcntl(e->desc.fd, F_SETOWN_EX, (long)&o->type);
	return r && r != -ESRCH ? failed(e, r) : 0;
}

/* One that was in a message has been put back there, and closed. */
int fd_owner_tell(const struct fd_entry *e)
{
	long flags = e->desc.status & O_ASYNC ? raw_fcntl(e->desc.fd, F_GETFL, 0) : -EBADF, r;

	r = flags < 0 ? flags : raw_fcntl(e->desc.fd, F_SETFL, flags | O_ASYNC);
	return r && r != -EBADF ? failed(e, r) : 0;
}
