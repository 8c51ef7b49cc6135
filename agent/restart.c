/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checkpoint thread comes back to life in a process that the restorer has rebuilt. Memory is as it was in WRITE: every
 * thread stopped, link and device descriptors as numbers that mean nothing any more. In this order:
 *
 *   1. wait until each thread has arrived in the agent: the restorer's pages hold no running thread then; take from them what has moved, unmap them
 *   2. queue the signals that waited for the process (each thread has queued those that waited for it)
 *   3. connect to the new coordinator, register as restarted
 *   4. serve its phases, as always
 *
 * The rights that pidfd_getfd may want are kept until the threads are released; each of those drops its own.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#include "agent/content.h"
#include "agent/device.h"
#include "agent/fd_table.h"
#include "agent/libc.h"
#include "base/fdpass.h"

static int connect_again(void)
{
	char path[sizeof(agent.restart.rundir) + 8];
	int fd, r;

	memcpy(agent.jobdir, agent.restart.rundir, sizeof(agent.jobdir));
	if (agent.restart.rdma[0])
		memcpy(agent.rdma, agent.restart.rdma, sizeof(agent.rdma));
	host_restarted();
	begun_restarted();
	environment_restarted();
	fdpass_job(agent.jobdir, (int)agent.pid);
	fm_format(path, sizeof(path), "%s/key", agent.jobdir);
	r = link_read_key(path, agent.key);
	if (r < 0)
		return r;
	fm_format(path, sizeof(path), "%s/sock", agent.jobdir);
	fd = link_dial(path);
	r = fd < 0 ? fd : agent_connect(fd);
	return r < 0 ? r : agent_register(MSG_REGISTER_RESTARTED);
}

/* What is kept of paths: plugins ask for those of their records. */
static void take_moved(void)
{
	int r = moved_restarted();

	if (!r)
		r = fd_terminals_restarted(&agent.restart);
	if (!r)
		r = moved_in_place(agent.libdir, sizeof(agent.libdir));
	if (!r)
		r = wrap_inotify_restarted();
	if (!r)
		return;
	log_error("process %u cannot take in what has moved (errno %d)", agent.pid, -r);
	raw_exit_group(5);
}

void agent_restarted(void)
{
	struct image_restart *r = &agent.restart;
	int err;

	thread_checkpoint_begins();
	fd_unreserve(agent.link.fd);
	agent.link.fd = -EBADF;
	agent.link_lock = (struct lock){ 0 };
	device_forget();
	device_threads_forget();
	libc_probe_forget();
	vdso_restarted(r->vdso_start);
	lazy_restarted();
	stop_await_restarted();
	take_moved();
	raw_munmap((void *)r->hole_start, r->hole_end - r->hole_start);
	content_restarted((int)r->image_fd);
	raw_close((int)r->image_fd);
	r->image_fd = UINT32_MAX;
	agent.generation++;
	agent.capsule = r->capsule;
	pending_restart(0);
	err = connect_again();
	if (err) {
		log_error("process %u is rebuilt but cannot reach the coordinator in %s (errno %d)", agent.pid,
			  agent.restart.rundir, -err);
		raw_exit_group(5);
	}
	agent_serve();
}
