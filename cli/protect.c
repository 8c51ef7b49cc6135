/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process that stays with a job, and its child:
 *
 *   fermata launch/restart --+-- program, or a restart and its job
 *     signals: passed on     |
 *     the one of --on-signal: a checkpoint, the job's end, status 99
 *     --on-failure: its end is followed by another life, from the newest checkpoint (protect_failure.c)
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

	if (pipe2(ready, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	p->ready_fd = ready[0];
	p->ended = false;
	p->runs = p->program;
	p->ending = 0;
	p->asked = false;
	p->failed[0] = 0;
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
	pid_t pid;
	int status;

	while (!p->ended && (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (pid != p->child)
			continue; /* an orphan that came to us */
		if (WIFSTOPPED(status)) {
			raise(SIGSTOP);
			continue;
		}
		p->status = status;
		p->ended = true;
	}
}

/* A restart's first byte: the job runs. */
static void child_runs(struct protect *p)
{
	char byte;

	if (read(p->ready_fd, &byte, 1) == 1) {
		p->runs = true;
		protect_watch(p);
	} else {
		close(p->ready_fd); /* it will not, or the program has been begun */
		p->ready_fd = -EBADF;
	}
}

/* What follows it: which of the programs has failed. */
static void child_failed(struct protect *p)
{
	ssize_t n = p->ready_fd < 0 || p->failed[0] ? 0 : read(p->ready_fd, p->failed, sizeof(p->failed) - 1);

	if (n > 0)
		p->failed[n] = 0;
	if (p->ready_fd >= 0)
		close(p->ready_fd);
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

/* Who asks the job to end does not want it back. A signal that our caller has us ignore asks for nothing. */
static bool asks_to_end(int sig)
{
	struct sigaction has;

	return (sig == SIGINT || sig == SIGQUIT || sig == SIGTERM) && sigaction(sig, NULL, &has) == 0 && has.sa_handler != SIG_IGN;
}

static void pass_on(struct protect *p, const struct signalfd_siginfo *info)
{
	switch (info->ssi_signo) {
	case SIGTTIN:
	case SIGTTOU:
	case SIGPIPE:
		return;
	default:
		if (info->ssi_pid && info->ssi_code != SI_KERNEL && is_descendant((pid_t)info->ssi_pid))
			return;
		p->to_end |= asks_to_end((int)info->ssi_signo);
		if (info->ssi_code != SI_KERNEL) /* from the terminal: the child has got it, too */
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
		[WATCH_READY] = { .fd = p->runs && !p->program ? -1 : p->ready_fd, .events = POLLIN },
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

/* Whether the child's end is one that nobody has asked for. */
static bool has_failed(const struct protect *p)
{
	if (!p->on_failure || p->to_end)
		return false;
	return p->ending ? p->ending == MSG_ENDING_FAILED : protect_is_failure(p->status);
}

/* One life of the job: true if another follows. */
static bool live(struct protect *p, int *ret_status)
{
	*ret_status = child_start(p);
	if (*ret_status < 0) {
		warnx("job %s: %s", p->job, strerror(-*ret_status));
		*ret_status = CLI_FAILED;
		return false;
	}
	while (!p->ended)
		listen_once(p);
	protect_drain(p);
	if (p->requeue)
		protect_wait_gone(p);
	child_failed(p);
	if (!p->requeue && has_failed(p) && protect_return(p))
		return true;
	*ret_status = p->requeue ? CLI_REQUEUE : restart_exit_status(p->status, 1); /* or dies */
	return false;
}

/* In the child. */
static int begin_again(void *arg, int ready)
{
	const struct protect *p = arg;

	return restart_again(p, ready);
}

int protect_run(struct protect *p)
{
	bool terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
	int err, status;

	p->signal = options_signal_number(p->on_signal);
	p->coordinator.link.fd = -EBADF;
	err = watch_signals(p);
	if (err) {
		warnx("job %s: %s", p->job, strerror(-err));
		return CLI_FAILED;
	}
	if (p->on_failure && p->keeps) {
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
		protect_remember(p);
	}
	if (p->program)
		protect_watch(p);
	while (live(p, &status)) {
		if (terminal)
			tcsetpgrp(STDIN_FILENO, getpgrp()); /* the programs may have had it */
		p->begin = begin_again;
		p->arg = p;
		p->handed = NULL;
		p->program = NULL;
	}
	job_close(&p->coordinator);
	return status;
}
