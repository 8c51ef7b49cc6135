/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that another one of the job traces, gdb or strace: neither knows of the other what a checkpoint would have to make again, and each signal that stops a thread is shown to the
 * tracer first, who may hold the thread there. So such a process is not even stopped; the refusal names both. A debugger from outside of the job is its user's own affair. No state.
 *
 * Sources: proc(5), TracerPid; ptrace(2), signal-delivery-stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "agent/agent.h"
#include "base/begun.h"

#define AGENT_NAME "/libfermata.so"
#define CHUNK 4096u

/* Whether @path, a process' maps, has a line with our name; false where it may not be read. */
static bool has_agent(const char *path)
{
	const size_t overlap = sizeof(AGENT_NAME) - 2;
	char text[CHUNK + sizeof(AGENT_NAME)];
	size_t kept = 0;
	bool found = false;
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	long n;

	if (fd < 0)
		return false;
	while (!found && (n = raw_read(fd, text + kept, CHUNK)) > 0) {
		text[kept + (size_t)n] = 0;
		found = strstr(text, AGENT_NAME) != NULL;
		n += (long)kept;
		kept = (size_t)n < overlap ? (size_t)n : overlap;
		memmove(text, text + n - kept, kept);
	}
	raw_close(fd);
	return found;
}

int traced_refuse(void)
{
	uint64_t tracer = begun_number("/proc/self/status", "\nTracerPid:");
	char path[64], name[32] = "";

	if (!tracer || tracer == UINT64_MAX)
		return 0;
	fm_format(path, sizeof(path), "/proc/%u/maps", (uint32_t)tracer);
	if (!has_agent(path))
		return 0;
	fm_format(path, sizeof(path), "/proc/%u/comm", (uint32_t)tracer);
	if (raw_read_file(path, name, sizeof(name)) > 0)
		name[strcspn(name, "\n")] = 0;
	return fermata_fail(-EOPNOTSUPP, "process %u is traced by process %u (%s), which is of the job, too: a checkpoint can be taken when it has let go, or of the program without it",
			    agent.pid, (uint32_t)tracer, name);
}
