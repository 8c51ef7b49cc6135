/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of which host of the job this process is: the name of the machine that it first came into the job on, inherited by fork with the memory, by exec with the
 * environment (environment.c), kept by a restart with the image. Owns agent.host, agent.part and agent.place.
 *
 * Names of the name service are the host's, but for those that say that they mean the job: pids, inodes, loopback addresses and whatever else is a number of one machine
 * may be another thing's on another. A part (fermata restart --part) of a host stands somewhere else than the rest of it: it has such numbers of its own.
 */
#include "agent/agent.h"

#include <stdlib.h>

#include "base/host_id.h"

_Static_assert(sizeof(agent.host) == HOST_ID_NAME, "a host's name");

static void note_where(void)
{
	agent.boot = host_id_boot();
	agent.where = host_id_where(agent.boot);
}

void host_init(void)
{
	note_where();
	if (!host_id_take(getenv("FERMATA_HOST"), agent.where, &agent.part, agent.host))
		return;
	agent.part = 0;
	host_id_node(agent.host);
}

/* An image of an older agent has no name; nor has it anything that could tell two hosts apart. */
void host_restarted(void)
{
	note_where();
	agent.part = agent.restart.part ? agent.where : 0;
	if (!agent.host[0])
		host_id_node(agent.host);
}

uint32_t fermata_host(void)
{
	return agent.place;
}

uint64_t fermata_where(void)
{
	return agent.where;
}

uint32_t fermata_member(void)
{
	return agent.member + 1;
}
