/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that a restart stops before they run on, and the debugger.
 *
 * The agent of such a process stops it with SIGSTOP as the last act of the restart, before any of its threads runs on.
 * So whoever lets it go on, a shell's kill -CONT or a debugger, needs nothing of ours. The debugger runs in the
 * capsule's namespaces: it knows the job's own process and thread ids, and files as the programs see them. It may leave
 * before its process ends; kernels put a process that was stopped when the debugger came back into that state, so it is
 * sent SIGCONT then. The capsule ends with the job's last process, and the debugger with it: the terminal gets back the
 * settings that it had.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/restart.h"

static struct termios settings; /* of the terminal before the debugger */
static bool has_settings;

static bool is_on_path(const char *program)
{
	const char *path = getenv("PATH");
	char *all = strdup(path ? path : "/usr/bin:/bin"), *rest = all, *folder, file[PATH_MAX];
	bool found = false;

	while (!found && (folder = strsep(&rest, ":"))) {
		snprintf(file, sizeof(file), "%s/%s", *folder ? folder : ".", program);
		found = access(file, X_OK) == 0;
	}
	free(all);
	return found;
}

int restart_debug_check(const struct restart *r)
{
	if (r->debug_pid && !is_on_path("gdb")) {
		warnx("--gdb: there is no gdb on the PATH; install it, or use --pause=%u and a debugger of your own",
		      r->debug_pid);
		return CLI_CANNOT;
	}
	return 0;
}

bool restart_is_paused(const struct restart *r, uint32_t pid)
{
	return r->pause_all || pid == r->pause_pid || pid == r->debug_pid;
}

static bool same_namespace(const char *host, pid_t init)
{
	struct stat a, b;
	char path[300];

	snprintf(path, sizeof(path), "/proc/%s/ns/pid", host);
	if (stat(path, &a) < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)init);
	return stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* By the pid that this host knows a process of the capsule by; 0: it is gone. */
static pid_t host_pid(pid_t init, uint32_t pid)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while (d && !found && (e = readdir(d)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && raw_process_inner(atoi(e->d_name)) == pid &&
		    same_namespace(e->d_name, init))
			found = atoi(e->d_name);
	if (d)
		closedir(d);
	return found;
}

/* A descriptor, -ENOENT if it is ours as well (the kernel refuses to enter one's own user namespace), or another
 * -errno. */
static int open_namespace(pid_t init, const char *name)
{
	struct stat theirs, ours;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	if (stat(path, &ours) < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)init, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &theirs) < 0)
		return -errno;
	return theirs.st_ino == ours.st_ino ? -ENOENT : fd;
}

/* The job is told to run before the process has stopped itself: a SIGCONT that came in between would be lost. */
static void await_stop(pid_t pid)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	char state;

	do {
		nanosleep(&pause, NULL);
		state = raw_process_state(pid);
	} while (state && !strchr("TtZX", state));
}

/* A debugger outside of the capsule would see other pids, and an ordinary user's no files: nsenter(1) takes it in. */
void restart_debug_tell(const struct restart *r, pid_t init)
{
	int user = open_namespace(init, "user");

	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;
		pid_t host = restart_is_paused(r, p->pid) && p->pid != r->debug_pid ? host_pid(init, p->pid) : 0;

		if (!host)
			continue;
		await_stop(host);
		fprintf(stderr, "fermata: process %u (%s) stands still before it runs on; on this host it is %d\n"
				"  debug it:     nsenter -t %d%s -m -p gdb -p %u\n  let it go on: kill -CONT %d\n",
			p->pid, p->comm, host, host, user >= 0 ? " -U --preserve-credentials" : "", p->pid, host);
	}
	if (user >= 0)
		close(user);
}

/* All are opened before the first is entered: /proc is another one then. 0 or -errno. */
static int enter_capsule(pid_t init)
{
	static const char *const names[] = {"user", "mnt", "pid"};
	int fds[ARRAY_SIZE(names)];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		fds[i] = open_namespace(init, names[i]);
		if (fds[i] < 0 && fds[i] != -ENOENT)
			return fds[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (fds[i] >= 0 && setns(fds[i], 0) < 0)
			return -errno;
	return 0;
}

static __attribute__((noreturn)) void become_gdb(uint32_t pid)
{
	/* Would be told as news: at the first "continue" the stop that the process is in; each checkpoint's signal. */
	static const char quiet[] = "python [gdb.execute('handle %s nostop noprint' % how, to_string=True) "
				    "for how in ('SIGSTOP nopass', 'SIG61 pass')]";
	char text[16];
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(text, sizeof(text), "%u", pid);
	execlp("gdb", "gdb", "-q", "-ex", quiet, "-p", text, (char *)NULL);
	warn("gdb");
	_exit(127);
}

/* The pid namespace is that of children: one more fork. */
static __attribute__((noreturn)) void run_gdb(const struct restart *r, pid_t init)
{
	int err = enter_capsule(init), status;
	pid_t gdb = err ? -1 : fork();

	if (!gdb)
		become_gdb(r->debug_pid);
	if (gdb < 0) {
		warnx("--gdb: the job's namespaces cannot be entered: %s", strerror(err ? -err : errno));
		_exit(1);
	}
	while (waitpid(gdb, &status, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

pid_t restart_debug_start(const struct restart *r, pid_t init)
{
	bool terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
	pid_t gdb;

	has_settings = terminal && tcgetattr(STDIN_FILENO, &settings) == 0;
	gdb = fork();
	if (gdb)
		return gdb;
	setpgid(0, 0);
	if (terminal)
		tcsetpgrp(STDIN_FILENO, getpgrp()); /* SIGTTOU is blocked here */
	run_gdb(r, init);
}

void restart_debug_over(const struct restart *r, pid_t init)
{
	pid_t host = host_pid(init, r->debug_pid);

	if (has_settings) {
		tcsetpgrp(STDIN_FILENO, getpgrp());
		tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
	}
	if (host)
		kill(host, SIGCONT);
}
