/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first process of a restarted job: pid 1 of its capsule, or, without one, a child subreaper of that name. It forks the tree, reaps, and tells
 * `fermata restart` how the tree's roots end. It blocks all signals and does what the socket says.
 *
 * When it ends, or `fermata restart` does, the job does: pid 1 takes its namespace along, and is killed when `fermata restart` is. Without a capsule it hears
 * the end of the socket, and kills its children until there are none; theirs become its own as they die. Should it be killed itself, they run on.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(int socket, uint32_t word, int32_t pid, int32_t value)
{
	struct capsule_message m = { word, pid, value };

	(void)send(socket, &m, sizeof(m), MSG_NOSIGNAL);
}

/* Where the host shows its POSIX message queues as files, the capsule shows its own. */
static void mount_mqueue(void)
{
	struct statfs s;

	if (statfs("/dev/mqueue", &s) == 0 && s.f_type == 0x19800202 /* MQUEUE_MAGIC */ &&
	    mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		warn("/dev/mqueue shows the queues of this host, not those of the job");
}

static int mount_own(const struct restart *r)
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
	restart_ptys_mount(r);
	return 0;
}

/* A root of the tree that lives, or NULL. */
static struct restart_process *find_root(const struct restart *r, pid_t pid)
{
	struct restart_process *p = restart_find_process(r, (uint32_t)pid);

	return p && !p->parent && !p->ended ? p : NULL;
}

/* False when nobody is left. */
static bool reap(const struct restart *r, int socket)
{
	struct restart_process *root;
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | __WALL);

		if (pid <= 0)
			return pid == 0 || errno == EINTR;
		root = find_root(r, pid);
		if (!root)
			continue;
		root->ended = !WIFSTOPPED(status);
		if (WIFSTOPPED(status))
			tell(socket, CAPSULE_STOPPED, pid, WSTOPSIG(status));
		else
			tell(socket, CAPSULE_EXITED, pid, status);
	}
}

/*
 * From the terminal, a signal goes to whole process groups: to those that the terminal itself has not reached. Where anybody may have the number of
 * a root that has ended, its group gets none either.
 */
static void pass_on(const struct restart *r, int sig, bool from_terminal)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		if (r->processes[i].parent || (r->processes[i].ended && (!from_terminal || !r->capsule)))
			continue;
		if (!from_terminal)
			kill((pid_t)p->pid, sig);
		else if (p->pgid == p->pid)
			kill(-(pid_t)p->pgid, sig);
	}
}

/* The terminal goes to the group that had it, or to the first root's own, as a shell would give it. */
static void take_foreground(const struct restart *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		if (p->foreground && restart_family_find(r, p->pgid) && tcsetpgrp(STDIN_FILENO, (pid_t)p->pgid) == 0)
			return;
	}
	for (size_t i = 0; i < r->count; i++) {
		const struct image_process *p = r->processes[i].info;

		if (!r->processes[i].parent && p->pgid == p->pid && restart_family_find(r, p->pid)->sid != p->pid) {
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

/* Without a capsule: our children, and theirs, which become ours. */
static void end_all(void)
{
	char path[64];
	long pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	do {
		f = fopen(path, "re");
		while (f && fscanf(f, "%ld", &pid) == 1)
			kill((pid_t)pid, SIGKILL);
		if (f)
			fclose(f);
	} while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR);
}

static int fork_tree(struct restart *r)
{
	int err = restart_ptys_create(r);

	if (!err)
		err = restart_tree_fork(r);
	restart_ptys_forked(r);
	return err;
}

static int begin(struct restart *r)
{
	if (!r->capsule)
		return fork_tree(r) < 0 || restart_walk_aside(r) < 0 ? -ECANCELED : 0;
	if (r->several && sethostname(r->manifest->hosts[r->host].name, strlen(r->manifest->hosts[r->host].name)) < 0) {
		warn("the node name %s", r->manifest->hosts[r->host].name);
		return -ECANCELED;
	}
	if (mount_own(r) < 0 || restart_sysv_create(r) < 0 || restart_ipc_create(r) < 0 || fork_tree(r) < 0)
		return -ECANCELED;
	restart_set_last_pid(r);
	return 0;
}

int restart_init_main(struct restart *r, int socket)
{
	int code = CLI_CANNOT;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	r->init = getpid();
	prctl(PR_SET_NAME, "fermata-capsule", 0, 0, 0);
	if (r->capsule)
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	else
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (begin(r) < 0) {
		tell(socket, CAPSULE_FAILED, 0, 0);
	} else {
		close(r->log_fd);
		close(r->gate_fd);
		tell(socket, CAPSULE_READY, 0, 0);
		code = init_serve(r, socket);
	}
	if (!r->capsule && code) {
		end_all();
		restart_walk_aside(r);
	}
	return code;
}

