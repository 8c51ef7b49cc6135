/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Terminals that `fermata restart` has made before it forked the processes of their sessions (cli/restart_ptys.c): masters for those who had them, and for each session's leader a slave that keeps the terminal
 * its controlling terminal until all slaves are open. They come with the exec, get out of the way of the program's numbers in RECREATE, and what nobody has taken is closed with the other
 * descriptors that were inherited. Owns the list, from the moment at which the restorer's pages go.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent/fd_table.h"
#include "base/sys.h"

static struct image_terminal *terminals;
static uint32_t count;

int fd_terminals_restarted(const struct image_restart *r)
{
	const bool told = r->size >= offsetof(struct image_restart, terminals) + sizeof(r->terminals); /* else they are those of a life before */

	terminals = NULL;
	count = 0;
	if (!told || !r->terminal_count)
		return 0;
	terminals = fermata_alloc(r->terminal_count * sizeof(*terminals));
	if (!terminals)
		return -ENOMEM;
	memcpy(terminals, (const void *)r->terminals, r->terminal_count * sizeof(*terminals));
	count = r->terminal_count;
	return 0;
}

int fd_terminals_inherit(int above)
{
	for (uint32_t i = 0; i < count; i++) {
		int to = fd_copy_above((int)terminals[i].fd, above);

		if (to < 0)
			return fermata_fail(to, "cannot keep a terminal of the restart (errno %d)", -to);
		raw_close((int)terminals[i].fd);
		terminals[i].fd = (uint32_t)to;
	}
	return 0;
}

int fermata_terminal_inherited(int fd)
{
	for (uint32_t i = 0; i < count; i++)
		if (terminals[i].maker_pid == fermata_pid() && terminals[i].maker_fd == fd) {
			int master = (int)terminals[i].fd;

			terminals[i] = terminals[--count];
			return master;
		}
	return -EBADF;
}

void fd_terminals_done(void)
{
	while (count)
		raw_close((int)terminals[--count].fd);
	fermata_free(terminals);
	terminals = NULL;
}
