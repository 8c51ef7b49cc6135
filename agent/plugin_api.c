/* SPDX-License-Identifier: BSD-2-Clause */
/* The services that plugins get, as include/fermata/plugin.h tells them, and the list of built-in plugins. */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/plugins.h"

extern const struct fermata_plugin plugin_event, plugin_file, plugin_ipc, plugin_mqueue, plugin_pipe, plugin_process, plugin_pty, plugin_schedule, plugin_socket, plugin_timer, plugin_verbs;

const struct fermata_plugin *const agent_plugins[] = {
	&plugin_mqueue, &plugin_file, &plugin_process, &plugin_pipe, &plugin_pty, &plugin_socket, &plugin_event, &plugin_timer, &plugin_ipc, &plugin_schedule, &plugin_verbs, NULL,
};

void *fermata_alloc(size_t size)
{
	return arena_alloc(&agent_arena, size);
}

void fermata_free(void *p)
{
	arena_free(&agent_arena, p);
}

int fermata_outputs_at_end(void)
{
	return agent.restart.outputs_at_end != 0;
}

const char *fermata_libdir(void)
{
	return agent.libdir;
}

uint32_t fermata_pid(void)
{
	return agent.pid;
}

uint32_t fermata_init_pid(void)
{
	return agent.restart.init;
}

int fermata_in_capsule(void)
{
	return agent.capsule;
}

uint32_t fermata_generation(void)
{
	return agent.generation;
}

int fermata_active(void)
{
	return agent.active;
}

int fermata_option_external(void)
{
	return agent.external == MSG_EXTERNAL_ERROR ? FERMATA_EXTERNAL_ERROR : agent.external == MSG_EXTERNAL_RECONNECT ? FERMATA_EXTERNAL_RECONNECT : FERMATA_EXTERNAL_FAIL;
}

const char *fermata_option_rdma(void)
{
	return agent.rdma;
}

int fermata_device_fd_move(int fd, int want)
{
	int flags = raw_fcntl(fd, F_GETFD, 0), r;

	if (fd == want)
		return 0;
	if (flags < 0)
		return flags;
	r = raw_dup3(fd, want, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	if (r < 0)
		return r;
	raw_close(fd);
	device_fd_remove(fd);
	device_fd_add(want);
	return 0;
}

void fermata_device_fd_note(int fd)
{
	device_fd_add(fd);
}

void *fermata_device_map(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *p;

	device_making_begin();
	p = raw_mmap(at, len, prot, flags, fd, (uint64_t)offset);
	if (!raw_is_error(p))
		device_range_add((uint64_t)p, len);
	device_making_end();
	if (!raw_is_error(p))
		return p;
	errno = (int)-(intptr_t)p;
	return MAP_FAILED;
}

/* Noted before it is done: then the addresses may be the program's at once. */
int fermata_device_unmap(void *at, size_t len)
{
	int r;

	device_making_begin();
	device_range_remove((uint64_t)at, len);
	r = raw_munmap(at, len);
	device_making_end();
	if (r)
		errno = -r;
	return r ? -1 : 0;
}
