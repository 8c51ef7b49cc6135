/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the list of descriptors that are the agent's. They live above RESERVED_BASE where the limit allows it, and the wrappers of
 * close, dup2 and their kin leave them alone; at a restart they are none of those that come back. Written by the checkpoint thread and the constructor only; read by any thread:
 * each slot is one word.
 */
#include "agent/agent.h"

#include <errno.h>

#include "agent/fd_table.h"

#define RESERVED_BASE 960
#define RESERVED_MAX 16

static _Atomic int reserved[RESERVED_MAX]; /* descriptor + 1; 0: free */

/* One from @from on that does not come back, above all of those if need be; or -errno. */
static int dup_from(int fd, int from)
{
	int to;

	while ((to = raw_fcntl(fd, F_DUPFD_CLOEXEC, from)) >= 0 && fd_table_has(to)) {
		raw_close(to);
		from = from < RESERVED_BASE ? to + 1 : fd_table_highest() + 1;
	}
	return to;
}

int fd_reserve(int fd)
{
	int to = dup_from(fd, RESERVED_BASE);

	if (to < 0) /* a limit below our range: stay where we are */
		to = dup_from(fd, 3);
	if (to < 0)
		return to;
	raw_close(fd);
	for (size_t i = 0; i < RESERVED_MAX; i++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&reserved[i], &none, to + 1))
			return to;
	}
	raw_close(to);
	return -EMFILE;
}

void fd_unreserve(int fd)
{
	for (size_t i = 0; i < RESERVED_MAX; i++) {
		int want = fd + 1;

		atomic_compare_exchange_strong(&reserved[i], &want, 0);
	}
}

bool fd_is_reserved(int fd)
{
	for (size_t i = 0; i < RESERVED_MAX; i++)
		if (atomic_load_explicit(&reserved[i], memory_order_relaxed) == fd + 1)
			return true;
	return false;
}
