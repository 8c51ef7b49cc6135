/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that ends by itself says so: the coordinator then knows its end from a crash, and a checkpoint that begins at that
 * moment goes on without it. A fork's child that has not registered yet says nothing: nobody misses it. Our threads hold the link only while they
 * read or write a frame, just as a phase begins; but on a busy machine they may stand there until it is their turn again. A courtesy: where the link stays
 * busy for a second (a signal handler may have interrupted an exec) nothing is said, and at worst a checkpoint fails and can be taken again.
 * Whether it has a child goes with it (one that vfork or posix_spawn has begun connects by itself, perhaps later), and how the last ones have ended. Behind a filter of its own, which may
 * end who sends something, a process says nothing: it has said so before (begun.c).
 */
#include <errno.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/wrap.h"

#define YIELDS 2000
#define NAPS 1000 /* of a millisecond */

static bool said; /* that we end: a checkpoint may still find us on the way there */

static bool take_link(void)
{
	const struct timespec nap = { 0, 1000000 };

	for (int i = 0; i < YIELDS + NAPS; i++) {
		if (lock_try(&agent.link_lock))
			return true;
		if (i < YIELDS)
			RAW0(SYS_sched_yield);
		else
			RAW2(SYS_nanosleep, &nap, NULL);
	}
	return false;
}

/* One that has yet to register says it then. */
void exit_foretold(bool ends)
{
	const struct msg_exiting m = { .stays = !ends };

	fermata_enter();
	if (take_link()) {
		if (agent.registered && agent.link.fd >= 0)
			link_send(&agent.link, MSG_EXITING, &m, sizeof(m));
		lock_release(&agent.link_lock);
	}
	fermata_leave();
}

static void say_goodbye(void)
{
	struct msg_exiting m = { 0 };

	if (!agent.active || !agent.registered || begun_filtered() || raw_getpid() != (int)agent.pid || agent.link.fd < 0)
		return;
	fermata_enter();
	m.childless = RAW5(SYS_waitid, P_ALL, 0, NULL, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL) == -ECHILD;
	if (take_link()) {
		said = true;
		child_ended_send(NULL, 0);
		link_send(&agent.link, MSG_EXITING, &m, sizeof(m));
		lock_release(&agent.link_lock);
	}
	fermata_leave();
}

void exit_forked(void)
{
	said = false;
}

/* The coordinator of this life has not heard it. Before the threads go on. */
void exit_restarted(void)
{
	const struct msg_exiting m = { 0 };

	if (!said)
		return;
	lock_acquire(&agent.link_lock);
	link_send(&agent.link, MSG_EXITING, &m, sizeof(m));
	lock_release(&agent.link_lock);
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
