/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The capsule: user, pid, IPC, mount and time namespaces in which every process and thread gets its old id and the clocks go on.
 *
 *   restart --fork--> builder: unshares --"unshared"--> restart writes the id maps --"mapped"-->
 *   builder: sets the clocks, clones init as restart's own child (CLONE_PARENT), ends
 *
 * Where the job had several hosts there is a UTS namespace as well, with the node name of the host: by that, and a pid, the job knows its processes.
 *
 * The maps are written from outside, where a root has its rights; a root who may make the other namespaces, but no user namespace, does without maps.
 * Init is pid 1 of the capsule (restart_init.c). Where namespaces are refused there is no capsule: init is a child of `fermata restart` like
 * any other, and restart_walk.c tells how the ids come back then.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

/* What the kernel adds to a clock of its own for us: where we are in a time namespace already, offsets are none to what we see. */
static int64_t read_offset(const char *name)
{
	FILE *f = fopen("/proc/self/timens_offsets", "re");
	long long seconds, ns, found = 0;
	char of[32];

	while (f && fscanf(f, "%31s %lld %lld", of, &seconds, &ns) == 3)
		if (!strcmp(of, name))
			found = seconds * NS_PER_S + ns;
	if (f)
		fclose(f);
	return found;
}

static int set_clock(FILE *f, const char *name, clockid_t clock, uint64_t want)
{
	struct timespec now;
	int64_t offset, seconds;

	clock_gettime(clock, &now);
	offset = read_offset(name) + (int64_t)want - (now.tv_sec * NS_PER_S + now.tv_nsec);
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

/* 0, or -errno. @more: besides those of every capsule. @ret_user: with a user namespace, whose ids have to be mapped. */
static int make_namespaces(int more, bool *ret_user)
{
	int err;

	*ret_user = true;
	if (unshare(NAMESPACES | more) == 0)
		return 0;
	err = -errno;
	*ret_user = false;
	return unshare((NAMESPACES | more) & ~CLONE_NEWUSER) == 0 ? 0 : err;
}

static int builder_main(struct restart *r, int socket, int sync)
{
	struct clone_args args = { .flags = CLONE_PARENT };
	int32_t init;
	bool user;
	char byte;
	int err = make_namespaces(r->several ? CLONE_NEWUTS : 0, &user);

	if (err) {
		explain_unshare(err);
		return CLI_CANNOT;
	}
	if (write(sync, user ? "u" : "p", 1) != 1 || read(sync, &byte, 1) != 1)
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
		_exit(restart_init_main(r, socket));
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
	err = byte == 'u' ? write_maps(builder) : 0;
	if (err < 0) {
		warnx("the capsule's user ids: %s", strerror(-err));
		return -CLI_CANNOT;
	}
	if (write(sync, "m", 1) != 1 || read(sync, &init, sizeof(init)) != sizeof(init))
		return -CLI_CANNOT;
	return init;
}

static int build( struct restart *r, int sockets[2])
{
	int sync[2], init;
	pid_t builder;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sync) < 0) {
		warn("the socket to the capsule");
		return -CLI_CANNOT;
	}
	builder = fork();
	if (builder == 0) {
		close(sockets[0]);
		close(sync[0]);
		_exit(builder_main(r, sockets[1], sync[1]));
	}
	close(sync[1]);
	init = builder < 0 ? -CLI_CANNOT : meet_builder(builder, sync[0]);
	close(sync[0]);
	if (builder > 0)
		waitpid(builder, NULL, 0);
	return init;
}

static int fork_init( struct restart *r, int sockets[2])
{
	pid_t init = fork();

	if (init == 0) {
		close(sockets[0]);
		close(r->gate_key_fd);
		_exit(restart_init_main(r, sockets[1]));
	}
	if (init < 0)
		warn("the job's first process");
	return init < 0 ? -CLI_CANNOT : init;
}

int restart_capsule_start( struct restart *r, int *ret_socket)
{
	int sockets[2], init;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
		warn("the socket to the job's first process");
		return -CLI_CANNOT;
	}
	fflush(NULL);
	init = r->capsule ? build(r, sockets) : fork_init(r, sockets);
	close(sockets[1]);
	*ret_socket = sockets[0];
	return init;
}

void restart_capsule_end(const struct restart *r, pid_t init, int socket)
{
	if (r->capsule)
		kill(init, SIGKILL);
	else
		shutdown(socket, SHUT_WR);
}

/* ---- is there one? ---- */

static int try_inside(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return errno;
	return 0;
}

/* In a process of its own: an errno. */
static int try_namespaces(void)
{
	bool user;
	int err = make_namespaces(0, &user), status;
	pid_t init;

	if (err)
		return -err;
	init = fork();
	if (init == 0)
		_exit(try_inside());
	return init > 0 && waitpid(init, &status, 0) == init && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
}

int restart_capsule_probe(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(try_namespaces());
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? -WEXITSTATUS(status) : -EAGAIN;
}
