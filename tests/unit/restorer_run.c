/* SPDX-License-Identifier: BSD-2-Clause */
/* The restorer in namespaces of its own, and looks at the process that it makes. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "restorer_util.h"

static void write_proc(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(77);
	close(fd);
}

static void raise_ambient(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	syscall(SYS_capget, &head, data);
	for (int i = 0; i < 2; i++)
		data[i].inheritable = data[i].permitted;
	syscall(SYS_capset, &head, data);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHECKPOINT_RESTORE, 0, 0);
}

static void exec_restorer(struct fixture *f, int plan_fd)
{
	char plan_text[16], image_text[16];
	sigset_t all;

	raise_ambient();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	snprintf(plan_text, sizeof(plan_text), "%d", plan_fd);
	snprintf(image_text, sizeof(image_text), "%d", f->image);
	execl(getenv("RESTORER"), "restorer", plan_text, image_text, (char *)NULL);
	_exit(76);
}

/* Pid 1 of the namespace: makes the process with its id and hands on its exit status. */
static void run_init(struct fixture *f, int plan_fd)
{
	pid_t pid = PID;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uint64_t)&pid, .set_tid_size = 1 };
	long child = syscall(SYS_clone3, &args, sizeof(args));
	int status;

	if (!child)
		exec_restorer(f, plan_fd);
	if (child < 0 || waitpid((pid_t)child, &status, 0) != child)
		_exit(75);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

void restorer_start(struct fixture *f)
{
	char map[64], gmap[64];
	int plan_fd = memfd_create("plan", 0), status;
	pid_t init;

	snprintf(map, sizeof(map), "%u %u 1", geteuid(), geteuid());
	snprintf(gmap, sizeof(gmap), "%u %u 1", getegid(), getegid());
	assert_int_equal(write(plan_fd, f->plan, f->plan->size), f->plan->size);
	f->outer = fork();
	if (f->outer) {
		close(f->report[1]);
		close(f->log[1]);
		close(plan_fd);
		return;
	}
	close(f->hold[1]);
	close(f->gate[1]);
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID))
		_exit(77);
	write_proc("/proc/self/setgroups", "deny");
	write_proc("/proc/self/uid_map", map);
	write_proc("/proc/self/gid_map", gmap);
	init = fork();
	if (!init)
		run_init(f, plan_fd);
	waitpid(init, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 74);
}

int restorer_wait(struct fixture *f)
{
	int status;

	close(f->hold[1]);
	close(f->gate[1]);
	assert_int_equal(waitpid(f->outer, &status, 0), f->outer);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void restorer_open_gate(struct fixture *f)
{
	assert_int_equal(write(f->gate[1], "", 1), 1);
}

const char *restorer_log(struct fixture *f, size_t *ret_length)
{
	static char text[4096];
	char byte;

	*ret_length = 0;
	while (read(f->log[0], &byte, 1) == 1)
		if (byte != PLAN_PROGRESS && *ret_length < sizeof(text) - 1)
			text[(*ret_length)++] = byte;
	text[*ret_length] = 0;
	return text;
}

pid_t proc_first_child(pid_t of)
{
	char path[64];
	int child = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", of, of);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &child), 1);
	fclose(f);
	return child;
}

char *proc_read(pid_t pid, const char *name)
{
	static char text[65536];
	char path[64];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

const char *proc_task(pid_t pid, const char *comm, const char *file)
{
	static char path[64];
	char dir[64], want[32];
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", pid);
	snprintf(want, sizeof(want), "%s\n", comm);
	d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "task/%.16s/comm", e->d_name);
		if (e->d_name[0] != '.' && !strcmp(proc_read(pid, path), want))
			break;
	}
	assert_non_null(e);
	snprintf(path, sizeof(path), "task/%.16s/%s", e->d_name, file);
	closedir(d);
	return path;
}
