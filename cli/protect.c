/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process that stays with a job, and its child:
 *
 *   fermata launch/restart --+-- program, or a restart and its job
 *     signals: passed on     |
 *     the one of --on-signal: a checkpoint, the job's end, status 99
 *
 * Owns the child and the signals. All signals are blocked here and read, one at a time. The child has the mask and the actions that our
 * caller gave us, and dies with us: who kills `fermata launch` means the program, as if that had been it.
 */
#include "cli/protect.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/restart.h"

enum { WATCH_SIGNAL, WATCH_LINK, WATCH_READY, WATCH_COUNT };

void protect_hold(const char *on_signal)
{
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, options_signal_number(on_signal));
	sigprocmask(SIG_BLOCK, &one, NULL);
}

/* ---- the child ---- */

static _Noreturn void child_begin(struct protect *p, pid_t parent, int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(CLI_FAILED);
	link_close(&p->coordinator.link);
	close(p->signal_fd);
	close(p->ready_fd);
	sigaction(SIGCHLD, &p->chld, NULL);
	if (p->signal)
		signal(p->signal, SIG_IGN); /* who sends it to a whole group means us */
	sigprocmask(SIG_SETMASK, &p->mask, NULL);
	exit(p->begin(p->arg, ready));
}

static int child_start(struct protect *p)
{
	pid_t parent = getpid();
	int ready[2];

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	p->ready_fd = ready[0];
	p->ended = false;
	p->runs = !p->restart;
	fflush(NULL);
	p->child = fork();
	if (p->child == 0)
		child_begin(p, parent, ready[1]);
	close(ready[1]);
	if (p->handed)
		job_close(p->handed);
	return p->child < 0 ? -errno : 0;
}

/* It stands still: so do we, and the shell sees it. */
static void child_reap(struct protect *p)
{
	int status;

	if (waitpid(p->child, &status, WNOHANG | WUNTRACED) != p->child)
		return;
	if (WIFSTOPPED(status)) {
		raise(SIGSTOP);
		return;
	}
	p->status = status;
	p->ended = true;
}

static void child_runs(struct protect *p)
{
	char byte;

	if (read(p->ready_fd, &byte, 1) == 1) {
		p->runs = true;
		protect_watch(p);
	}
	close(p->ready_fd); /* at its end, too: the program has been begun, or has failed to come back */
	p->ready_fd = -EBADF;
}

/* ---- signals ---- */

/* A program that signals its own process group reaches us as well, and has reached all whom it means. */
static bool is_descendant(pid_t pid)
{
	char path[32], line[512];
	pid_t self = getpid();

	for (int depth = 0; pid > 1 && depth < 64; depth++) {
		const char *rest;
		FILE *f;

		if (pid == self)
			return true;
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		f = fopen(path, "re");
		rest = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		if (f)
			fclose(f);
		if (!rest || sscanf(rest, ") %*c %d", &pid) != 1)
			return false;
	}
	return false;
}

/* A job that has not come back yet has lost nothing since its checkpoint. */
static void requeue_unrestored(struct protect *p)
{
	warnx("job %s: %s before the job went on: the checkpoint is as it was, requeue", p->job, p->on_signal);
	p->requeue = true;
	kill(p->child, SIGTERM);
}

static void pass_on(const struct protect *p, const struct signalfd_siginfo *info)
{
	switch (info->ssi_signo) {
	case SIGTTIN:
	case SIGTTOU:
	case SIGPIPE:
		return;
	default:
		/* From the terminal: the child has got it, too. */
		if (info->ssi_code == SI_KERNEL || (info->ssi_pid && is_descendant((pid_t)info->ssi_pid)))
			return;
		kill(p->child, (int)info->ssi_signo);
	}
}

static void hear_signal(struct protect *p)
{
	struct signalfd_siginfo info;

	if (read(p->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD)
		child_reap(p);
	else if (p->signal && info.ssi_signo == (uint32_t)p->signal)
		p->runs ? protect_ask(p) : requeue_unrestored(p);
	else
		pass_on(p, &info);
}

static int watch_signals(struct protect *p)
{
	struct sigaction normal = { .sa_handler = SIG_DFL };
	sigset_t all;

	sigfillset(&all);
	for (int fault = SIGILL; fault <= SIGSEGV; fault++)
		if (fault == SIGILL || fault == SIGTRAP || fault == SIGABRT || fault == SIGBUS || fault == SIGFPE || fault == SIGSEGV)
			sigdelset(&all, fault);
	sigaction(SIGCHLD, &normal, &p->chld);
	sigprocmask(SIG_BLOCK, &all, &p->mask);
	if (p->signal)
		sigdelset(&p->mask, p->signal); /* protect_hold()'s, not our caller's */
	p->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	return p->signal_fd < 0 ? -errno : 0;
}

/* ---- the loop ---- */

static void listen_once(struct protect *p)
{
	struct pollfd f[WATCH_COUNT] = {
		[WATCH_SIGNAL] = { .fd = p->signal_fd, .events = POLLIN },
		[WATCH_LINK] = { .fd = p->coordinator.link.fd, .events = POLLIN },
		[WATCH_READY] = { .fd = p->ready_fd, .events = POLLIN },
	};

	if (poll(f, WATCH_COUNT, -1) < 0)
		return;
	if (f[WATCH_READY].revents)
		child_runs(p);
	if (f[WATCH_SIGNAL].revents)
		hear_signal(p);
	if (f[WATCH_LINK].revents)
		protect_hear(p);
}

int protect_run(struct protect *p)
{
	int err;

	p->signal = options_signal_number(p->on_signal);
	p->coordinator.link.fd = -EBADF;
	err = watch_signals(p);
	if (!err && !p->restart)
		protect_watch(p);
	if (!err)
		err = child_start(p);
	if (err) {
		warnx("job %s: %s", p->job, strerror(-err));
		return CLI_FAILED;
	}
	while (!p->ended)
		listen_once(p);
	protect_drain(p);
	if (p->requeue)
		protect_wait_gone(p);
	job_close(&p->coordinator);
	return p->requeue ? CLI_REQUEUE : restart_exit_status(p->status, 1);
}
