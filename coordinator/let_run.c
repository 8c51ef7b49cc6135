/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which stopped processes of this host are let run for the checkpoint under way, and by which process of ours (let_run_trace.c). Owns that list, and the signal that such a one has ended by: where it could not trace
 * (the kernel's Yama, a filter of system calls), the stopped process is in the way of the checkpoint, and is named.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

struct let_run {
	struct list node; /* of coordinator.let_run */
	pid_t pid, tracer;
};

/* The first: others are those that it has made for children. */
struct conn *let_run_connection(struct coordinator *c, pid_t pid)
{
	struct conn *k;

	list_each(k, &c->conns, node)
		if (!k->relay && !k->tunnel && k->state != CONN_CLOSED && k->sender == pid)
			return k;
	return NULL;
}

static struct let_run *let_run_find(struct coordinator *c, pid_t pid)
{
	struct let_run *l;

	list_each(l, &c->let_run, node)
		if (l->pid == pid)
			return l;
	return NULL;
}

bool let_run_has(struct coordinator *c, pid_t pid)
{
	return let_run_find(c, pid) != NULL;
}

/* What we hold shows to others that we live: it must not outlive us there. All signals are blocked. */
static _Noreturn void let_run_child(pid_t pid, const char *jobdir)
{
	static const int caught[] = { SIGTERM, SIGINT, SIGCHLD };
	sigset_t child;

	for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
		signal(caught[i], SIG_DFL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	pthread_sigmask(SIG_SETMASK, &child, NULL);
	closefrom(3);
	setsid();
	prctl(PR_SET_NAME, "fermata-letrun");
	_exit(-let_run_trace(pid, jobdir));
}

static pid_t let_run_fork(pid_t pid, const char *jobdir)
{
	sigset_t all, old;
	pid_t child;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	child = fork();
	if (!child)
		let_run_child(pid, jobdir);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return child < 0 ? -errno : child;
}

static void let_run_reap(uv_signal_t *signal, int number)
{
	struct coordinator *c = signal->data;
	struct let_run *l;
	int status;

	(void)number;
	list_each_safe(l, &c->let_run, node) {
		if (waitpid(l->tracer, &status, WNOHANG) != l->tracer)
			continue;
		list_del(&l->node);
		if (WIFEXITED(status) && WEXITSTATUS(status))
			silent_stopped(c, l->pid, -WEXITSTATUS(status));
		free(l);
	}
}

int let_run_begin(struct coordinator *c, pid_t pid)
{
	struct let_run *l;

	if (let_run_find(c, pid))
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	uv_signal_start(&c->child, let_run_reap, SIGCHLD);
	*l = (struct let_run){ .pid = pid, .tracer = let_run_fork(pid, c->jobdir) };
	if (l->tracer < 0) {
		int r = l->tracer;

		free(l);
		return r;
	}
	log_info("process %d is stopped: process %d lets it run for the checkpoint", (int)pid, (int)l->tracer);
	list_add_tail(&c->let_run, &l->node);
	return 0;
}

/* One that is no member yet was stopped as it was born; nobody knows more of it than that its parent has connected for it. */
static void let_run_child_of(struct coordinator *c, pid_t pid, const char *tid)
{
	char path[64], text[4096], *p = text;
	long child;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)pid, tid);
	if (raw_read_file(path, text, sizeof(text)) < 0)
		return;
	while ((child = strtol(p, &p, 10)) > 0)
		if (raw_process_state((int)child) == 'T' && !let_run_connection(c, (pid_t)child))
			let_run_begin(c, (pid_t)child);
}

void let_run_newborn(struct coordinator *c, pid_t pid)
{
	char path[64];
	struct dirent *e;
	DIR *d;

	if (raw_process_state(pid) == 'T')
		let_run_begin(c, pid);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (*e->d_name != '.')
			let_run_child_of(c, pid, e->d_name);
	if (d)
		closedir(d);
}

void let_run_end(struct coordinator *c)
{
	struct let_run *l;

	list_each_safe(l, &c->let_run, node)
		free(l);
}
