/* SPDX-License-Identifier: BSD-2-Clause */
/* How the process makes itself known to the coordinator, and what that answers. No state of its own. */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"

static int refused(const struct link_message *m)
{
	size_t n = m->length - sizeof(struct msg_error);
	char text[256];

	n = n < sizeof(text) ? n : sizeof(text) - 1;
	memcpy(text, m->data + sizeof(struct msg_error), n);
	text[n] = 0;
	agent.with_relay = false;
	if (n)
		log_error("%s", text);
	return -EACCES;
}

int agent_connect(int fd)
{
	int r = link_open(&agent.link, fd, agent.key);

	if (r < 0)
		return r;
	r = fd_reserve(agent.link.fd);
	if (r < 0)
		return r;
	agent.link.fd = r;
	return 0;
}

int agent_register(uint32_t flags)
{
	struct msg_register m = { .pid = agent.pid, .ppid = (uint32_t)raw_getppid(), .flags = flags | MSG_REGISTER_LET_RUN,
				  .generation = agent.generation, .part = agent.part, .boot = agent.boot };
	const struct msg_welcome *welcome;
	struct link_message in;
	long n;
	int r;

	thread_program_name(m.comm);
	memcpy(m.host, agent.host, sizeof(m.host));
	n = RAW4(SYS_readlinkat, AT_FDCWD, "/proc/thread-self/exe", m.exe, sizeof(m.exe) - 1);
	m.exe[n > 0 ? n : 0] = 0;
	r = link_send(&agent.link, MSG_REGISTER, &m, sizeof(m));
	while (!r) { /* after an exec, phases meant for the old image may come first: they will be sent again */
		r = link_receive(&agent.link, &in, -1); /* as long as a checkpoint may be under way */
		if (!r && in.type == MSG_ERROR)
			r = refused(&in);
		if (!r && in.type == MSG_WELCOME)
			break;
	}
	if (r)
		return r;
	let_run_allow();
	if (in.length < sizeof(struct msg_welcome))
		return -EPROTO;
	welcome = (const void *)in.data;
	agent.member = welcome->member;
	agent.timeout_ms = welcome->timeout_ms;
	agent.place = welcome->host;
	agent.with_relay = welcome->flags & MSG_WELCOME_WITH_RELAY;
	agent.registered = true;
	if (begun_filtered())
		link_send(&agent.link, MSG_EXITING, &(struct msg_exiting){ 0 }, sizeof(struct msg_exiting));
	return 0;
}

/*
 * Where our host's relay was killed the job is brought back elsewhere, and must not run here as well. A relay that goes, because the coordinator has, says so: that may not be
 * read yet.
 */
void agent_link_lost(void)
{
	struct link_message m;

	while (agent.with_relay && link_receive(&agent.link, &m, 0) == 0)
		if (m.type == MSG_ERROR)
			agent.with_relay = false;
	if (agent.with_relay)
		RAW2(SYS_kill, raw_getpid(), 9 /* SIGKILL */);
}
