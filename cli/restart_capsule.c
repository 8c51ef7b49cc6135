/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The capsule: user, pid, IPC, mount and time namespaces in which every process and thread gets its old id and the clocks go on.
 *
 *   restart --fork--> builder: unshares --"unshared"--> restart writes the id maps --"mapped"-->
 *   builder: sets the clocks, clones init as restart's own child (CLONE_PARENT), ends
 *
 * The maps are written from outside, where a root has its rights. Init is pid 1 of the capsule: it mounts /proc, forks
 * the tree, reaps, and tells `fermata restart` how the tree's roots end. It blocks all signals and does what the socket says. When it ends, the
 * kernel ends all that is left in the capsule; it is killed when `fermata restart` is.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWTIME)
#define NS_PER_S 1000000000ll

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

int restart_write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* Every id that this namespace knows, mapped to itself; without the right to do so, our own only. */
static int write_map(pid_t builder, const char *name, unsigned int own)
{
	char path[64], line[64], map[4096] = "";
	unsigned int inside, outside, count;
	size_t used = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	f = fopen(path, "re");
	while (f && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3 && used < sizeof(map) - 40)
		used += (size_t)snprintf(map + used, sizeof(map) - used, "%u %u %u\n", inside, inside, count);
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/%s", builder, name);
	if (geteuid() == 0 && !restart_write_text(path, map))
		return 0;
	snprintf(line, sizeof(line), "%u %u 1\n", own, own);
	return restart_write_text(path, line);
}

static int write_maps(pid_t builder)
{
	char path[64];
	int err = write_map(builder, "uid_map", geteuid());

	if (!err)
		err = write_map(builder, "gid_map", getegid());
	if (err == -EPERM) { /* a group may be mapped without rights once setgroups is given up */
		snprintf(path, sizeof(path), "/proc/%d/setgroups", builder);
		err = restart_write_text(path, "deny");
		if (!err)
			err = write_map(builder, "gid_map", getegid());
	}
	return err;
}

static int set_clock(FILE *f, const char *name, clockid_t clock, uint64_t want)
{
	struct timespec now;
	int64_t offset, seconds;

	clock_gettime(clock, &now);
	offset = (int64_t)want - (now.tv_sec * NS_PER_S + now.tv_nsec);
	seconds = offset / NS_PER_S - (offset % NS_PER_S < 0);
	return fprintf(f, "%s %lld %lld\n", name, (long long)seconds, (long long)(offset - seconds * NS_PER_S));
}

/* CLOCK_MONOTONIC and CLOCK_BOOTTIME of the capsule go on from the newest image. */
static int set_clocks(const struct restart *r)
{
	uint64_t monotonic = 0, boottime = 0;
	char text[256] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");

	if (!f)
		return -errno;
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		monotonic = p->monotonic_ns > monotonic ? p->monotonic_ns : monotonic;
		boottime = p->boottime_ns > boottime ? p->boottime_ns : boottime;
	}
	set_clock(f, "monotonic", CLOCK_MONOTONIC, monotonic);
	set_clock(f, "boottime", CLOCK_BOOTTIME, boottime);
	fclose(f);
	return restart_write_text("/proc/self/timens_offsets", text);
}

/*
 * What the processes need until their resources are re-created; for a user who is not root in the capsule. The last one also lets a message go again
 * with the credentials that it had (SCM_CREDENTIALS).
 */
bool restart_raise_ambient(void)
{
	static const int wanted[] = { CAP_CHECKPOINT_RESTORE, CAP_SYS_PTRACE, CAP_SYS_ADMIN };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) < 0)
		return false;
	for (int i = 0; i < 2; i++)
		data[i].inheritable = data[i].permitted;
	if (syscall(SYS_capset, &head, data) < 0)
		return false;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, wanted[i], 0, 0); /* before Linux 5.9 there was no first one */
	return true;
}

static void tell(int socket, uint32_t word, int32_t pid, int32_t value)
{
	struct capsule_message m = { word, pid, value };

	(void)send(socket, &m, sizeof(m), MSG_NOSIGNAL);
}

/* ---- init ---- */

/* Where the host shows its POSIX message queues as files, the capsule shows its own. */
static void mount_mqueue(void)
{
	struct statfs s;

	if (statfs("/dev/mqueue", &s) == 0 && s.f_type == 0x19800202 /* MQUEUE_MAGIC */ &&
	    mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		warn("/dev/mqueue shows the queues of this host, not those of the job");
}

static int mount_proc(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
		warn("the capsule's mounts");
		return -errno;
	}
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
		int err = -errno;

		warn("/proc cannot be mounted in a pid namespace of our own");
		warnx("parts of /proc are hidden here, as containers do; run it where /proc is whole"
		      " (docker: --security-opt systempaths=unconfined)");
		return err;
	}
	mount_mqueue();
	return 0;
}

static bool is_root(const struct restart *r, pid_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if ((pid_t)r->processes[i].info->pid == pid)
			return !r->processes[i].parent;
	return false;
}

/* False when nobody is left. */
static bool reap(const struct restart *r, int socket)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | __WALL);

		if (pid <= 0)
			return pid == 0 || errno == EINTR;
		if (!is_root(r, pid))
			continue;
		if (WIFSTOPPED(status))
			tell(socket, CAPSULE_STOPPED, pid, WSTOPSIG(status));
		else
			tell(socket, CAPSULE_EXITED, pid, status);
	}
}

/* From the terminal, a signal goes to whole process groups: to those that the terminal itself has not reached. */
static void pass_on(const struct restart *r, int sig, bool from_terminal)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		if (r->processes[i].parent)
			continue;
		if (!from_terminal)
			kill((pid_t)p->pid, sig);
		else if (p->pgid == p->pid)
			kill(-(pid_t)p->pgid, sig);
	}
}

/* The terminal goes to the first root's own process group, as a shell would give it. */
static void take_foreground(const struct restart *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		if (!r->processes[i].parent && p->pgid == p->pid && p->sid != p->pid) {
			tcsetpgrp(STDIN_FILENO, (pid_t)p->pgid);
			return;
		}
	}
}

static bool obey(const struct restart *r, int socket)
{
	struct capsule_message m;
	ssize_t n = recv(socket, &m, sizeof(m), MSG_DONTWAIT);

	if (n == 0)
		return false; /* fermata restart is gone */
	if (n != sizeof(m))
		return true;
	if (m.word == CAPSULE_SIGNAL)
		pass_on(r, m.value, m.pid == 1);
	else if (m.word == CAPSULE_FOREGROUND)
		take_foreground(r);
	return true;
}

static int init_serve(const struct restart *r, int socket)
{
	struct pollfd poll_fds[2] = { { .fd = socket, .events = POLLIN }, { .events = POLLIN } };
	struct signalfd_siginfo info;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	poll_fds[1].fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (poll_fds[1].fd < 0)
		return CLI_CANNOT;
	while (reap(r, socket)) {
		if (poll(poll_fds, 2, -1) < 0 && errno != EINTR)
			return CLI_CANNOT;
		if (poll_fds[0].revents && !obey(r, socket))
			return CLI_CANNOT;
		while (read(poll_fds[1].fd, &info, sizeof(info)) > 0)
			;
	}
	return 0;
}

/* New processes of the program get numbers behind all old ones. */
static void set_last_pid(const struct restart *r)
{
	uint32_t last = 0;
	char text[16];

	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].helper_tid > last)
			last = r->processes[i].helper_tid;
	snprintf(text, sizeof(text), "%u", last + 2 * PLAN_EAGER_MAX);
	(void)restart_write_text("/proc/sys/kernel/ns_last_pid", text);
}

static int init_main(const struct restart *r, int socket)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "fermata-capsule", 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (mount_proc() < 0 || restart_sysv_create(r) < 0 || restart_ipc_create(r) < 0 || restart_tree_fork(r) < 0) {
		tell(socket, CAPSULE_FAILED, 0, 0);
		return CLI_CANNOT;
	}
	set_last_pid(r);
	close(r->log_fd);
	close(r->gate_fd);
	tell(socket, CAPSULE_READY, 0, 0);
	return init_serve(r, socket);
}

/* ---- the way there ---- */

static void explain_unshare(int err)
{
	warnx("this host refuses the namespaces that a restart needs (user, pid, mount, IPC, time): %s", strerror(-err));
	if (err == -EINVAL)
		warnx("the kernel lacks one of them: Linux 5.9 or newer has them all");
	else if (err == -ENOSPC)
		warnx("their number is limited: see /proc/sys/user/max_user_namespaces");
	else
		warnx("an administrator can allow them: sysctl kernel.unprivileged_userns_clone=1,"
		      " kernel.apparmor_restrict_unprivileged_userns=0");
}

static int builder_main(const struct restart *r, int socket, int sync)
{
	struct clone_args args = { .flags = CLONE_PARENT };
	int32_t init;
	char byte;
	int err;

	if (unshare(NAMESPACES) < 0) {
		explain_unshare(-errno);
		return CLI_CANNOT;
	}
	if (write(sync, "u", 1) != 1 || read(sync, &byte, 1) != 1)
		return CLI_CANNOT;
	err = set_clocks(r);
	if (err < 0) {
		warnx("the capsule's clocks: %s", strerror(-err));
		return CLI_CANNOT;
	}
	init = (int32_t)syscall(SYS_clone3, &args, sizeof(args));
	if (init < 0) {
		warn("the capsule's first process");
		return CLI_CANNOT;
	}
	if (init == 0) {
		close(sync);
		close(r->gate_key_fd);
		_exit(init_main(r, socket));
	}
	return write(sync, &init, sizeof(init)) == sizeof(init) ? 0 : CLI_CANNOT;
}

static int meet_builder(pid_t builder, int sync)
{
	int32_t init;
	char byte;
	int err;

	if (read(sync, &byte, 1) != 1)
		return -CLI_CANNOT;
	err = write_maps(builder);
	if (err < 0) {
		warnx("the capsule's user ids: %s", strerror(-err));
		return -CLI_CANNOT;
	}
	if (write(sync, "m", 1) != 1 || read(sync, &init, sizeof(init)) != sizeof(init))
		return -CLI_CANNOT;
	return init;
}

int restart_capsule_start(const struct restart *r, int *ret_socket)
{
	int sockets[2], sync[2], init;
	pid_t builder;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sync) < 0) {
		warn("the socket to the capsule");
		return -CLI_CANNOT;
	}
	fflush(NULL);
	builder = fork();
	if (builder == 0) {
		close(sockets[0]);
		close(sync[0]);
		_exit(builder_main(r, sockets[1], sync[1]));
	}
	close(sockets[1]);
	close(sync[1]);
	init = builder < 0 ? -CLI_CANNOT : meet_builder(builder, sync[0]);
	close(sync[0]);
	if (builder > 0)
		waitpid(builder, NULL, 0);
	*ret_socket = sockets[0];
	return init;
}
