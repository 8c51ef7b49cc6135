/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starts a job's coordinator: this executable again, as a daemon: own session, no descriptors of ours but the error output until it is
 * ready, and not our child, since this process is about to become a program that may wait for any child. No state.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "cli/cli.h"

#define START_ARGS_MAX (40 + 2 * OPTIONS_WITH_MAX)
#define START_READY_FD 3

struct start_args {
	const char *v[START_ARGS_MAX];
	char numbers[4][16], dir[JOB_PATH_MAX];
	int count, number_count;
};

static void start_arg(struct start_args *a, const char *name, const char *value)
{
	if (!value)
		return;
	a->v[a->count++] = name;
	a->v[a->count++] = value;
}

static void start_number(struct start_args *a, const char *name, unsigned int value, bool given)
{
	char *text = a->numbers[a->number_count];

	if (!given)
		return;
	snprintf(text, sizeof(a->numbers[0]), "%u", value);
	a->number_count++;
	start_arg(a, name, text);
}

static int start_args(struct start_args *a, const struct job_options *o)
{
	char by_name[80];
	json_t *utf8;

	*a = (struct start_args){ .v = { "fermata", "coordinator" }, .count = 2 };
	snprintf(by_name, sizeof(by_name), "fermata-%.63s", o->name);
	if (paths_absolute(o->dir ? o->dir : by_name, a->dir, sizeof(a->dir)) < 0) {
		log_error("--dir %s: the path is too long", o->dir ? o->dir : by_name);
		return -ENAMETOOLONG;
	}
	utf8 = json_string(a->dir);
	json_decref(utf8);
	if (!utf8) {
		log_error("--dir %s: the path is not valid UTF-8", a->dir);
		return -EINVAL;
	}
	if (o->with && options_with_apart(o->with, a->dir) < 0)
		return -EINVAL;
	start_arg(a, "--job", o->name);
	start_arg(a, "--ready-fd", "3");
	start_arg(a, "--relay", o->coordinator);
	if (o->coordinator)
		return 0;
	start_arg(a, "--dir", a->dir);
	start_arg(a, "--listen", o->listen);
	start_arg(a, "--compress", o->compress);
	start_arg(a, "--rdma", o->rdma);
	start_arg(a, "--files", o->files);
	for (unsigned int i = 0; o->with && i < o->with->count; i++)
		start_arg(a, "--with", o->with->paths[i]);
	start_arg(a, "--external", o->external);
	start_arg(a, "--text", o->text);
	start_arg(a, "--on-failure", o->on_failure);
	start_arg(a, "--on-signal", o->on_signal);
	start_arg(a, "--restart", o->restart);
	start_number(a, "--interval", o->interval, o->interval_given);
	start_number(a, "--keep", o->keep, o->keep_given);
	start_number(a, "--restarts", o->restarts, o->restarts_given);
	start_number(a, "--timeout", o->timeout, o->timeout_given);
	if (o->linger)
		a->v[a->count++] = "--linger";
	return 0;
}

static _Noreturn void start_daemon(const struct start_args *a, int ready)
{
	static const char *const ours[] = { "LD_PRELOAD", "FERMATA_JOBDIR", "FERMATA_FD" };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		unsetenv(ours[i]);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		_exit(1);
	/* dup2 to itself would leave close-on-exec on. */
	if (ready == START_READY_FD)
		fcntl(ready, F_SETFD, 0);
	else if (dup2(ready, START_READY_FD) < 0)
		_exit(1);
	syscall(SYS_close_range, START_READY_FD + 1, ~0u, 0);
	if (chdir("/") < 0)
		_exit(1);
	execv("/proc/self/exe", (char **)a->v);
	log_error("the coordinator could not be started: %s", strerror(errno));
	_exit(1);
}

int start_coordinator(const struct job_options *o)
{
	struct start_args args;
	int ready[2], r = start_args(&args, o);
	char answer[4];
	pid_t pid;

	if (r < 0)
		return r;
	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		setsid();
		if (fork() == 0)
			start_daemon(&args, ready[1]);
		_exit(0);
	}
	close(ready[1]);
	if (pid < 0)
		r = -errno;
	else
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (r == 0 && raw_read_all(ready[0], answer, 3) < 0)
		r = -ECHILD;
	close(ready[0]);
	return r;
}
