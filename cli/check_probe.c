/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The probes of fermata check. Each runs in a process of its own (check.c) and asks the kernel for the thing itself, not for a version
 * or a setting that should allow it. The namespaces are made as `fermata restart` makes them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fdpass.h"
#include "base/macro.h"
#include "base/pid_walk.h"
#include "cli/check.h"
#include "cli/cli.h"
#include "coordinator/rundir.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define CHECK_UFFD_WP_ASYNC (1u << 15) /* newer than this system's headers may be */
#define CHECK_CAPSULE (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS)

static int probe_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		r = -errno;
	close(fd);
	return r;
}

static int probe_user_namespace(char *detail, size_t size)
{
	char uid[64], gid[64];
	int r;

	snprintf(uid, sizeof(uid), "%u %u 1", (unsigned int)geteuid(), (unsigned int)geteuid());
	snprintf(gid, sizeof(gid), "%u %u 1", (unsigned int)getegid(), (unsigned int)getegid());
	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	r = probe_write("/proc/self/setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	r = probe_write("/proc/self/uid_map", uid);
	return r < 0 ? r : probe_write("/proc/self/gid_map", gid);
}

/* Runs @fn as the first process of a capsule's namespaces. */
static int probe_inside(int (*fn)(void))
{
	int r = probe_user_namespace(NULL, 0), status;
	pid_t pid;

	if (r < 0)
		return r;
	if (unshare(CHECK_CAPSULE) < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		_exit(-fn());
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

static int inside_nothing(void)
{
	return getpid() == 1 ? 0 : -EINVAL;
}

static int probe_namespaces(char *detail, size_t size)
{
	return probe_inside(inside_nothing);
}

static int inside_set_tid(void)
{
	pid_t want = 299; /* no pid_max is below 301 */
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&want, .set_tid_size = 1 };
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return -errno;
	waitpid((pid_t)pid, NULL, 0);
	return pid == want ? 0 : -EINVAL;
}

static int probe_set_tid(char *detail, size_t size)
{
	return probe_inside(inside_set_tid);
}

/* In a capsule or without one. */
static int probe_ids(char *detail, size_t size)
{
	int r = probe_inside(inside_set_tid);

	snprintf(detail, size, r ? "without namespaces; fermata-restart(1) tells what is different" : "in namespaces of its own");
	return !r ? 0 : pid_walk_last() < 0 ? (int)pid_walk_last() : pid_walk_step();
}

static int inside_proc(void)
{
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return -errno;
	return access("/proc/1/status", R_OK) < 0 ? -errno : 0;
}

static int probe_proc(char *detail, size_t size)
{
	return probe_inside(inside_proc);
}

static int probe_time_namespace(char *detail, size_t size)
{
	int r = probe_user_namespace(NULL, 0);

	if (r < 0)
		return r;
	if (unshare(CLONE_NEWTIME) < 0)
		return -errno;
	return probe_write("/proc/self/timens_offsets", "monotonic 1000 0\nboottime 1000 0\n");
}

static int probe_mm_map(char *detail, size_t size)
{
	unsigned int map_size = 0;

	return prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &map_size, 0, 0) < 0 ? -errno : 0;
}

/* As agent/fd_mark.c does it. */
static int probe_marks(void)
{
	char dir[RUNDIR_PATH_MAX];
	int r = rundir_create(dir), lock = r ? -1 : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = open("/dev/null", O_RDONLY), copy = dup(fd);

	if (r || lock < 0 || flock(lock, LOCK_SH) < 0)
		return r ? r : -errno;
	if (fcntl(fd, F_SETSIG, SIGIO) < 0)
		return -errno;
	return fcntl(copy, F_GETSIG) == SIGIO ? 0 : -EINVAL;
}

static int probe_shared(char *detail, size_t size)
{
	int fd = open("/dev/null", O_RDONLY), copy = dup(fd);
	long r = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, copy);

	if (r >= 0 || !fdpass_is_refused(-errno))
		return r > 0 ? -EINVAL : r < 0 ? -errno : 0;
	snprintf(detail, size, "by marks, as kcmp is refused");
	return probe_marks();
}

static int probe_process_vm(char *detail, size_t size)
{
	char from[16] = "fermata", to[16] = "";
	struct iovec local = { to, sizeof(to) }, remote = { from, sizeof(from) };
	int status, r;
	pid_t pid = fork();

	if (pid == 0)
		_exit(process_vm_readv(getppid(), &local, 1, &remote, 1, 0) < 0 ? errno : 0);
	r = pid < 0 || waitpid(pid, &status, 0) < 0 ? -errno : -WEXITSTATUS(status);
	if (r == -EPERM)
		snprintf(detail, size, "refused between sibling processes (Yama ptrace_scope?)");
	return r;
}

static int probe_take_by_other(int fd)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int r;

		fdpass_job(fdpass_directory(), getpid());
		r = fdpass_take(getppid(), fd);
		_exit(r < 0 ? -r : 0);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 ? -errno : -WEXITSTATUS(status);
}

static int probe_handed_out(char *detail, size_t size)
{
	char dir[RUNDIR_PATH_MAX], path[RUNDIR_PATH_MAX + 32];
	int fd = open("/dev/null", O_RDONLY), r;

	fdpass_consent(); /* as each process of a restart does */
	r = probe_take_by_other(fd);
	if (!fdpass_is_refused(r))
		return r;
	snprintf(detail, size, "by sockets, as pidfd_getfd is refused");
	r = rundir_create(dir);
	snprintf(path, sizeof(path), "%s/.check-%d", dir, getpid());
	if (r || mkdir(path, 0700) < 0)
		return r ? r : -errno;
	fdpass_job(path, getpid());
	r = fdpass_serve(3);
	if (r == 0)
		r = probe_take_by_other(fd);
	fdpass_serve_end();
	rmdir(path);
	return r;
}

static int probe_pagemap_scan(char *detail, size_t size)
{
	/* struct pm_scan_arg of Linux 6.7 */
	struct {
		uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
		uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
	} arg = { .size = sizeof(arg), .return_mask = 1u << 3 /* PAGE_IS_PRESENT */, .category_mask = 1u << 3 };
	uint64_t region[3];
	static char page[2 * FM_PAGE_SIZE];
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	arg.start = ALIGN_UP((uintptr_t)page, (uintptr_t)FM_PAGE_SIZE);
	arg.end = arg.start + FM_PAGE_SIZE;
	arg.vec = (uintptr_t)region;
	arg.vec_len = 1;
	return ioctl(fd, _IOWR('f', 16, arg), &arg) < 0 ? -errno : 0;
}

static int probe_wp_async(char *detail, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API, .features = CHECK_UFFD_WP_ASYNC };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		return -errno;
	return ioctl(fd, UFFDIO_API, &api) < 0 ? -errno : 0;
}

static int probe_memlock(char *detail, size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return -errno;
	if (limit.rlim_max == RLIM_INFINITY) {
		snprintf(detail, size, "unlimited");
		return 0;
	}
	size_format((double)limit.rlim_max, detail, size);
	return limit.rlim_max < (64u << 20) ? -ENOMEM : 0;
}

static int probe_shm(char *detail, size_t size)
{
	struct statvfs st;
	char free_text[32];

	if (statvfs("/dev/shm", &st) < 0 || access("/dev/shm", W_OK) < 0)
		return -errno;
	size_format((double)st.f_bavail * (double)st.f_frsize, free_text, sizeof(free_text));
	snprintf(detail, size, "%s free in /dev/shm", free_text);
	return st.f_bavail * st.f_frsize < (64u << 20) ? -ENOSPC : 0;
}

static int probe_gdb(char *detail, size_t size)
{
	const char *path = getenv("PATH");
	char at[4096];

	for (path = path ? path : "/usr/bin"; *path;) {
		size_t len = strcspn(path, ":");

		snprintf(at, sizeof(at), "%.*s/gdb", (int)len, path);
		if (access(at, X_OK) == 0) {
			snprintf(detail, size, "%s", at);
			return 0;
		}
		path += len + (path[len] == ':');
	}
	return -ENOENT;
}

static int probe_agent(char *detail, size_t size)
{
	char path[JOB_PATH_MAX];
	int r = paths_lib("libfermata.so", path, sizeof(path));

	if (r == 0)
		snprintf(detail, size, "%.190s", path);
	return r;
}

static int probe_restorer(char *detail, size_t size)
{
	char path[JOB_PATH_MAX];

	return paths_lib("fermata/restorer", path, sizeof(path));
}

static int probe_rundir(char *detail, size_t size)
{
	char dir[RUNDIR_PATH_MAX];
	int r = rundir_create(dir);

	snprintf(detail, size, "%.190s", dir);
	return r;
}

static int probe_children(char *detail, size_t size)
{
	return access("/proc/self/task", R_OK) < 0 ? -errno : 0;
}

#define NAMESPACES_REMEDY \
	"sysctl user.max_user_namespaces (above 0), kernel.unprivileged_userns_clone=1, " \
	"kernel.apparmor_restrict_unprivileged_userns=0; in a container: allow unshare and clone3"

const struct check check_table[] = {
	{ "libfermata.so", CHECK_CHECKPOINT, probe_agent, "build or install fermata completely, or set FERMATA_LIBDIR" },
	{ "runtime directory", CHECK_CHECKPOINT, probe_rundir, "set FERMATA_RUNDIR to a short path of your own, mode 0700" },
	{ "/proc", CHECK_CHECKPOINT, probe_children, "mount /proc" },
	{ "shared descriptors are found", CHECK_CHECKPOINT, probe_shared,
	  "a kernel with CONFIG_KCMP; in a container: allow kcmp in its seccomp profile, or set FERMATA_RUNDIR to a local file system" },
	{ "restorer", CHECK_RESTART, probe_restorer, "build or install fermata completely, or set FERMATA_LIBDIR" },
	{ "processes with their old ids", CHECK_RESTART, probe_ids, "a kernel with CONFIG_CHECKPOINT_RESTORE" },
	{ "user namespace", CHECK_APART, probe_user_namespace, NAMESPACES_REMEDY },
	{ "pid, mount and IPC namespaces", CHECK_APART, probe_namespaces, NAMESPACES_REMEDY },
	{ "time namespace (clocks go on)", CHECK_APART, probe_time_namespace, "a kernel with CONFIG_TIME_NS (5.6 or newer)" },
	{ "clone3 with set_tid in a namespace", CHECK_APART, probe_set_tid,
	  "kernel 5.5 or newer; in a container: allow clone3 in its seccomp profile" },
	{ "a /proc of its own", CHECK_APART, probe_proc,
	  "in a container: start it with /proc not masked (podman: --security-opt unmask=/proc/*)" },
	{ "PR_SET_MM_MAP (brk and arguments)", CHECK_RESTART, probe_mm_map, "a kernel with CONFIG_CHECKPOINT_RESTORE" },
	{ "shared descriptors are handed out", CHECK_RESTART, probe_handed_out,
	  "kernel 5.6 or newer, kernel.yama.ptrace_scope=0; in a container: allow pidfd_getfd, or set FERMATA_RUNDIR to a short path" },
	{ "process_vm_readv (softrdma copies once)", CHECK_RDMA, probe_process_vm, "kernel.yama.ptrace_scope=0" },
	{ "PAGEMAP_SCAN (untouched pages are skipped fast)", CHECK_OPTIONAL, probe_pagemap_scan, "kernel 6.7 or newer" },
	{ "userfaultfd WP_ASYNC (increments)", CHECK_OPTIONAL, probe_wp_async, "kernel 6.7 or newer" },
	{ "memory that may be locked (RDMA devices)", CHECK_RDMA, probe_memlock,
	  "ulimit -l unlimited, or memlock in /etc/security/limits.conf" },
	{ "shared memory (softrdma)", CHECK_RDMA, probe_shm, "make /dev/shm larger: mount -o remount,size=.. /dev/shm" },
	{ "gdb (opens images)", CHECK_OPTIONAL, probe_gdb, "install gdb" },
};
const size_t check_count = ARRAY_SIZE(check_table);
