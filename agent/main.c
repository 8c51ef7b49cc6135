/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Birth of the agent: in the constructor of a program that runs under a coordinator, in the child of a fork, and in the new image of
 * an exec. Owns the one struct agent and its arena.
 *
 * A fork: the handlers of pthread_atfork run for every fork() that glibc makes. Ours are registered first, so prepare runs last and
 * child first. prepare dials: the connection, still nameless, is in the coordinator's queue before the child exists, and the
 * coordinator does not end SUSPEND while a nameless connection is there. The child's watch thread proves the key and
 * registers while the child runs already; it holds the link's lock until then, so an exec waits for it. Who ends before that leaves
 * a nameless connection that closes. Between prepare and the end of parent/child the thread is in a no-checkpoint region and holds the
 * locks of whatever the child goes on using, so no process is ever half forked in an image, and none has a lock whose holder is not there.
 *
 * An exec: wrap_exec.c leaves the connection open and names it in FERMATA_FD; the constructor of the new image takes it up again.
 */
#include "agent/agent.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/device.h"
#include "agent/hooks.h"
#include "agent/kept.h"
#include "agent/libc.h"
#include "agent/plugins.h"
#include "agent/tracer.h"
#include "agent/wrap.h"
#include "base/fault.h"
#include "base/fdpass.h"

struct agent agent = { .link = { .fd = -EBADF } };
struct arena agent_arena;
__thread struct fermata_thread_state fermata_thread __attribute__((tls_model("initial-exec")));

static int dialled = -EBADF; /* between a fork's prepare and its child */

static int dial(void)
{
	char path[sizeof(agent.jobdir) + 8];

	fm_format(path, sizeof(path), "%s/sock", agent.jobdir);
	return link_dial(path);
}

static void fork_prepare(void)
{
	fermata_enter_open();
	hooks_each(offsetof(struct fermata_plugin, fork_prepare));
	device_lock();
	dialled = agent.active ? dial() : -EBADF;
	lock_acquire(&agent_arena.lock);
	libc_heap_lock();
}

static void fork_parent(void)
{
	if (dialled >= 0)
		raw_close(dialled);
	dialled = -EBADF;
	libc_heap_unlock();
	lock_release(&agent_arena.lock);
	device_unlock();
	hooks_each(offsetof(struct fermata_plugin, fork_parent));
	fermata_leave();
}

static void drop_link(void)
{
	if (agent.link.fd >= 0) {
		fd_unreserve(agent.link.fd);
		raw_close(agent.link.fd);
	}
	agent.link.fd = -EBADF;
}

/* The watch thread's own table has no standard error: the program's is borrowed, or opened where that is refused. */
static void warn_alone(int err)
{
	int fd = fdpass_take((int)agent.pid, 2);

	if (fd < 0)
		fd = raw_open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0)
		RAW3(SYS_dup3, fd, 2, 0);
	log_warn("the child of a fork is outside the job: no connection to the coordinator in %s (errno %d)", agent.jobdir, -err);
	raw_close(fd);
	raw_close(2);
}

/* In the watch thread of the child; fork_child has taken the link's lock for it. */
static void join_forked(void)
{
	int r = link_open(&agent.link, agent.link.fd, agent.key);

	if (!r)
		r = agent_register(MSG_REGISTER_FORKED);
	if (r)
		agent.active = false;
	lock_release(&agent.link_lock);
	if (!r) {
		agent_watch();
		return;
	}
	agent_link_lost();
	warn_alone(r);
}

static void fork_child(void)
{
	int r = dialled;

	dialled = -EBADF;
	fermata_thread.pending = 0; /* there is nobody yet who could ask for a stop */
	fermata_thread.device_depth &= ~DEVICE_THREAD;
	fermata_leave(); /* what a handler that forks has interrupted parent and child end each for itself */
	agent.link_lock = (struct lock){ 0 };
	libc_heap_unlock();
	libc_probe_forget();
	lock_release(&agent_arena.lock);
	device_unlock();
	device_threads_forget();
	agent.pid = (uint32_t)raw_getpid();
	agent.forked = true;
	agent.registered = false;
	agent.member = UINT32_MAX;
	fdpass_job(agent.jobdir, (int)agent.pid);
	kept_forked();
	drop_link();
	hooks_each(offsetof(struct fermata_plugin, fork_child));
	if (!agent.active)
		return;
	if (r >= 0)
		r = agent.link.fd = fd_reserve(r);
	if (r >= 0) {
		lock_acquire(&agent.link_lock);
		r = thread_watch_start(join_forked);
	}
	if (r < 0) {
		agent.link_lock = (struct lock){ 0 };
		log_warn("the child of a fork is outside the job: no connection to the coordinator in %s (errno %d)",
			 agent.jobdir, -r);
		agent.active = false;
		drop_link();
	}
}

static int copy_env(char *to, size_t size, const char *name)
{
	const char *v = getenv(name);

	if (!v)
		return -ENOENT;
	if (strlen(v) >= size)
		return -ENAMETOOLONG;
	memcpy(to, v, strlen(v) + 1);
	return 0;
}

/* The connection that an exec left open for us, or a new one. */
static int join(void)
{
	const char *inherited = getenv("FERMATA_FD");
	char path[sizeof(agent.jobdir) + 8];
	int fd = inherited ? atoi(inherited) : -EBADF, r;

	fm_format(path, sizeof(path), "%s/key", agent.jobdir);
	r = link_read_key(path, agent.key);
	if (r < 0)
		return r;
	if (inherited) {
		unsetenv("FERMATA_FD");
		r = fd_reserve(fd);
		if (r >= 0) {
			agent.link.fd = r;
			return agent_register(MSG_REGISTER_EXECED);
		}
	}
	fd = dial();
	r = fd < 0 ? fd : agent_connect(fd);
	return r < 0 ? r : agent_register(0);
}

static void start_plugins(void)
{
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++)
		if ((*p)->init && (*p)->init() < 0)
			log_warn("plugin %s does not start", (*p)->name);
}

/* Its emulated processor knows no thread but libc's. The checkpoint is refused by the name of what emulates, which is a member, and statically linked. */
static bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "/vgpreload_");
}

__attribute__((constructor)) static void agent_main(void)
{
	const char *level = getenv("FERMATA_LOG");
	int r;

	if (level)
		log_level = (enum log_level)atoi(level);
	if (fault_init(getenv("FERMATA_FAULT")))
		log_warn("FERMATA_FAULT names no fault point: ignored");
	wrap_resolve();
	vdso_init();
	lazy_init();
	agent.signal = AGENT_SIGNAL;
	agent.pid = (uint32_t)raw_getpid();
	if (copy_env(agent.libdir, sizeof(agent.libdir), "FERMATA_LIBDIR") < 0)
		agent.libdir[0] = 0;
	if (copy_env(agent.rdma, sizeof(agent.rdma), "FERMATA_RDMA") < 0)
		memcpy(agent.rdma, "auto", 5);
	host_init();
	begun_init();
	environment_init();
	wrap_undo_init();
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	r = copy_env(agent.jobdir, sizeof(agent.jobdir), "FERMATA_JOBDIR");
	if (r == -ENOENT || getenv("FERMATA_APART"))
		return; /* preloaded without a job, or what begins in ssh's place (exec_remote.c): wrappers pass through */
	if (under_valgrind()) {
		log_warn("under valgrind there are no checkpoints: those of the job are refused until process %u has ended", agent.pid);
		return;
	}
	if (!r)
		r = stop_init();
	agent.active = true;
	wrap_signal_stacks();
	fdpass_job(agent.jobdir, (int)agent.pid);
	start_plugins();
	if (!r)
		r = join();
	if (!r)
		r = thread_watch_start(agent_watch);
	if (r) {
		log_error("this process cannot be checkpointed: no coordinator in %s (errno %d)", agent.jobdir, -r);
		agent.active = false;
		drop_link();
	}
}
