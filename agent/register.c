/* SPDX-License-Identifier: BSD-2-Clause */
/* How the process makes itself known to the coordinator, and what that answers. No state of its own. */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"

int agent_register(uint32_t flags)
{
	struct msg_register m = { .pid = agent.pid, .ppid = (uint32_t)raw_getppid(), .flags = flags,
				  .generation = agent.generation };
	struct link_message in;
	long n;
	int r;

	RAW5(SYS_prctl, 16 /* PR_GET_NAME */, m.comm, 0, 0, 0);
	raw_read_file("/proc/sys/kernel/hostname", m.host, sizeof(m.host));
	for (char *c = m.host; *c; c++)
		if (*c == '\n')
			*c = 0;
	n = RAW4(SYS_readlinkat, AT_FDCWD, "/proc/thread-self/exe", m.exe, sizeof(m.exe) - 1);
	m.exe[n > 0 ? n : 0] = 0;
	r = link_send(&agent.link, MSG_REGISTER, &m, sizeof(m));
	while (!r) { /* after an exec, phases meant for the old image may come first: they will be sent again */
		r = link_receive(&agent.link, &in, -1); /* as long as a checkpoint may be under way */
		if (!r && in.type == MSG_ERROR)
			r = -EACCES;
		if (!r && in.type == MSG_WELCOME)
			break;
	}
	if (r)
		return r;
	if (in.length < sizeof(struct msg_welcome))
		return -EPROTO;
	agent.member = ((const struct msg_welcome *)(const void *)in.data)->member;
	agent.timeout_ms = ((const struct msg_welcome *)(const void *)in.data)->timeout_ms;
	agent.registered = true;
	return 0;
}
