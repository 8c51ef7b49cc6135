/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that ends by itself says so: the coordinator then knows its end from a crash, and a checkpoint that begins at that
 * moment goes on without it. A courtesy: where the link is busy (a signal handler may have interrupted an exec) nothing is
 * said, and at worst a checkpoint fails and can be taken again.
 */
#include <errno.h>

#include "agent/agent.h"
#include "agent/wrap.h"

static void say_goodbye(void)
{
	if (!agent.active || raw_getpid() != (int)agent.pid || agent.link.fd < 0)
		return;
	fermata_enter();
	if (lock_try(&agent.link_lock)) {
		link_send(&agent.link, MSG_EXITING, NULL, 0);
		lock_release(&agent.link_lock);
	}
	fermata_leave();
}

__attribute__((destructor)) static void at_exit(void)
{
	say_goodbye();
}

EXPORT void _exit(int status)
{
	say_goodbye();
	raw_exit_group(status);
}

EXPORT void _Exit(int status)
{
	_exit(status);
}
