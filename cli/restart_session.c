/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A restart's run, and its job's after it:
 *
 *   coordinator (a daemon)  ->  capsule with its processes  ->  all memory is in and whole: the gate opens
 *   ->  the coordinator says "complete"  ->  wait: signals and the terminal are passed on, the roots' exit statuses become ours
 *
 * Five things are listened to in one loop: the capsule's init (socket), the restorers (log pipe), the coordinator (link), signals, and the orders of
 * who conducts a restart of several hosts. Until
 * the restart is complete any failure ends the capsule: its init is killed, and the kernel kills all in it.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/protect.h"
#include "cli/restart.h"
#include "cli/restart_session.h"

#define EARLY_GRACE_MS 5000 /* a busy machine: the coordinator says in a moment what is the matter, unless the process has never come to it */
#define INTERRUPT_GRACE_MS 300

double session_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the capsule ---- */

static void tell_init(const struct session *s, uint32_t word, int32_t pid, int32_t value)
{
	struct capsule_message m = { word, pid, value };

	(void)send(s->watch[WATCH_INIT].fd, &m, sizeof(m), MSG_NOSIGNAL);
}

static const char *name_of(const struct restart *r, int32_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if ((int32_t)r->processes[i].info->pid == pid)
			return r->processes[i].info->comm;
	return "?";
}

/* A shell's rule: the terminal is ours to give if our own group has it. */
static void give_terminal(struct session *s)
{
	if (s->restart->background || !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp())
		return;
	s->has_terminal = true;
	tell_init(s, CAPSULE_FOREGROUND, 0, 0);
}

/* The first of our streams that is one, in the order of agent/fd_stdio.c. What no session of ours has is nobody's. */
static bool may_set_terminal(const struct restart *r)
{
	static const int order[] = { STDIN_FILENO, STDERR_FILENO, STDOUT_FILENO };
	pid_t group;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (isatty(order[i])) {
			group = tcgetpgrp(order[i]);
			return !r->background && (group < 0 || group == getpgrp());
		}
	return false;
}

static void take_terminal(struct session *s)
{
	if (s->has_terminal)
		tcsetpgrp(STDIN_FILENO, getpgrp());
	s->has_terminal = false;
}

/* What has failed takes the others with it, if that is not what somebody wanted: the job comes back. */
static void judge_exit(struct session *s, const struct capsule_message *m)
{
	char how[80];

	if (!s->restart->on_failure || s->to_end || s->failing || !protect_is_failure(m->value))
		return;
	protect_describe(m->value, how, sizeof(how));
	dprintf(s->restart->ready_fd, "process %d (%s) %s", m->pid, name_of(s->restart, m->pid), how);
	s->failing = true;
	s->worst = m->value;
	if (!s->init_ended)
		restart_capsule_end(s->restart, s->init, s->watch[WATCH_INIT].fd);
}

/* Before the restart is complete, as far as we have heard: judge_early(). Of several it is one that has failed. */
static void hear_exit(struct session *s, const struct capsule_message *m)
{
	if (m->value && !s->worst)
		s->worst = m->value;
	if (s->complete) {
		judge_exit(s, m);
		return;
	}
	if (!s->early.pid)
		s->early_since = session_now();
	if (!s->early.pid || !protect_is_failure(s->early.value))
		s->early = *m;
}

static void hear_init(struct session *s)
{
	struct capsule_message m;
	ssize_t n = recv(s->watch[WATCH_INIT].fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n != sizeof(m)) {
		if (n == 0)
			s->watch[WATCH_INIT].fd = -1;
		return;
	}
	switch (m.word) {
	case CAPSULE_READY: /* the processes are made; who makes the threads takes the lock again, and may have it */
		if (!s->gate.open)
			restart_walk_unlock(s->restart);
		break;
	case CAPSULE_FAILED:
		s->failed = true;
		break;
	case CAPSULE_EXITED:
		hear_exit(s, &m);
		break;
	case CAPSULE_STOPPED: /* stop as well, so that the shell sees it */
		if (m.value == SIGSTOP && restart_is_paused(s->restart, (uint32_t)m.pid))
			break;
		if (!s->has_terminal && !isatty(STDIN_FILENO))
			break;
		take_terminal(s);
		raise(SIGSTOP);
		break;
	default:
		break;
	}
}

/* As long as memory comes in, the coordinator waits. */
static void hear_restorers(struct session *s)
{
	if (!restart_gate_hear(&s->gate)) {
		s->watch[WATCH_LOG].fd = -1;
		restart_walk_unlock(s->restart); /* all threads are made */
	}
	if (restart_gate_is_due(&s->gate)) {
		restart_walk_lock(s->restart, session_keep_alive, s);
		restart_gate_open(&s->gate);
	}
	s->failed |= s->gate.failed;
	if (!s->failed && !s->complete)
		session_keep_alive(s);
}

static void end_debugging(struct session *s)
{
	s->gdb = 0;
	restart_debug_over(s->restart, s->init);
	give_terminal(s);
}

/* Who stands still is told; the debugger has the terminal before the programs have. */
static void begin_debugging(struct session *s)
{
	restart_debug_tell(s->restart, s->init);
	if (s->restart->debug_pid)
		s->gdb = restart_debug_start(s->restart, s->init);
	if (s->gdb < 0)
		end_debugging(s);
}

static void take_signal(struct session *s, int sig, bool from_terminal)
{
	if (!s->complete && (sig == SIGINT || sig == SIGTERM || sig == SIGHUP)) {
		s->interrupt = sig;
		s->interrupt_since = session_now();
		return;
	}
	s->to_end |= sig == SIGINT || sig == SIGQUIT || sig == SIGTERM;
	tell_init(s, CAPSULE_SIGNAL, from_terminal, sig);
}

static void hear_signal(struct session *s)
{
	struct signalfd_siginfo info;
	bool from_terminal;

	if (read(s->watch[WATCH_SIGNAL].fd, &info, sizeof(info)) != sizeof(info))
		return;
	from_terminal = info.ssi_code == SI_KERNEL;
	switch (info.ssi_signo) {
	case SIGCHLD:
		if (waitpid(s->init, NULL, WNOHANG) == s->init)
			s->init_ended = true;
		if (s->gdb > 0 && waitpid(s->gdb, NULL, WNOHANG) == s->gdb)
			end_debugging(s);
		return;
	case SIGTSTP:
		if (from_terminal)
			raise(SIGSTOP); /* the terminal has stopped the programs of our group */
		break;
	case SIGCONT:
		give_terminal(s);
		tell_init(s, CAPSULE_SIGNAL, 1, SIGCONT);
		return;
	default:
		if (info.ssi_signo == (uint32_t)options_signal_number(s->restart->on_signal))
			return; /* who sent it to our whole group means the process that stays with us */
		break;
	}
	take_signal(s, (int)info.ssi_signo, from_terminal);
}

/* Their end: whoever conducts is gone, or wants no more of us. */
static void hear_orders(struct session *s)
{
	unsigned char sig;

	if (read(s->watch[WATCH_ORDERS].fd, &sig, 1) == 1) {
		take_signal(s, sig, false);
		return;
	}
	s->watch[WATCH_ORDERS].fd = -1;
	s->to_end = true;
	if (s->complete)
		restart_capsule_end(s->restart, s->init, s->watch[WATCH_INIT].fd);
	else
		s->failed = true;
}

/* ---- the command ---- */

static int watch_signals(void)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
				      SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD, SIGALRM };
	sigset_t set, more;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		sigaddset(&set, wanted[i]);
	more = set;
	sigaddset(&more, SIGTTOU); /* taking the terminal back from the background */
	sigaddset(&more, SIGPIPE);
	sigprocmask(SIG_BLOCK, &more, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The coordinator's word is on its way: the programs may run already, or its agent may have told why. */
static void judge_early(struct session *s)
{
	int status = s->early.value;

	if (s->complete && s->early.pid) {
		judge_exit(s, &s->early);
		s->early.pid = 0;
	}
	if (s->failed || !s->early.pid || session_now() - s->early_since < EARLY_GRACE_MS / 1000.0)
		return;
	warnx("process %d ended before the restart was complete (%s %d)", s->early.pid,
	      WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	s->failed = true;
}

/* The programs may run already, and the coordinator's word on that be on its way: then it is theirs. */
static void judge_interrupt(struct session *s)
{
	if (!s->interrupt || s->failed)
		return;
	if (s->complete) {
		tell_init(s, CAPSULE_SIGNAL, 0, s->interrupt);
		s->interrupt = 0;
	} else if (session_now() - s->interrupt_since >= INTERRUPT_GRACE_MS / 1000.0) {
		if (!s->restart->conducted)
			warnx("interrupted; the checkpoint is as it was");
		s->failed = true;
	}
}

static void listen_once(struct session *s)
{
	int limit = s->complete ? -1 : s->interrupt ? INTERRUPT_GRACE_MS : s->early.pid ? EARLY_GRACE_MS : -1;

	if (poll(s->watch, WATCH_COUNT, limit) < 0)
		return;
	if (s->watch[WATCH_LOG].revents)
		hear_restorers(s);
	if (s->watch[WATCH_INIT].revents)
		hear_init(s);
	if (s->watch[WATCH_LINK].revents)
		session_hear_coordinator(s);
	if (s->watch[WATCH_SIGNAL].revents)
		hear_signal(s);
	if (s->watch[WATCH_ORDERS].revents)
		hear_orders(s);
	judge_early(s);
	judge_interrupt(s);
}

static void end_capsule(struct session *s)
{
	if (s->init > 0 && !s->init_ended) {
		restart_capsule_end(s->restart, s->init, s->watch[WATCH_INIT].fd);
		waitpid(s->init, NULL, 0);
	}
	s->init_ended = true;
	if (s->link.fd >= 0)
		link_send(&s->link, MSG_QUIT, NULL, 0);
	restart_files_undo(s->restart);
	restart_trees_undo(s->restart);
}

static int conduct(struct session *s, double since)
{
	struct restart *r = s->restart;

	while (!s->complete && !s->failed && (!s->init_ended || s->early.pid))
		listen_once(s);
	if (!s->complete) {
		if (!s->failed)
			warnx("the capsule's first process was ended");
		end_capsule(s);
		while (s->watch[WATCH_LOG].fd >= 0) /* what the restorers have said */
			hear_restorers(s);
		return restart_gate_failure(&s->gate);
	}
	link_close(&s->link);
	if (isatty(STDERR_FILENO) && !r->conducted)
		fprintf(stderr, "fermata: job %s goes on after %.2f s\n", r->job, session_now() - since);
	begin_debugging(s);
	if (!s->gdb)
		give_terminal(s);
	while (!s->init_ended)
		listen_once(s);
	while (s->watch[WATCH_INIT].fd >= 0)
		hear_init(s);
	if (s->gdb) {
		waitpid(s->gdb, NULL, 0); /* it was in the capsule */
		end_debugging(s);
	}
	take_terminal(s);
	return restart_exit_status(s->worst, r->conducted ? 2 : s->roots);
}

static int start_capsule(struct session *s)
{
	int socket = -1, code = restart_gate_create(s->restart, &s->gate);

	if (code)
		return code;
	s->init = restart_capsule_start(s->restart, &socket);
	restart_gate_inherited(&s->gate);
	s->watch[WATCH_LOG] = (struct pollfd){ .fd = s->gate.log_fd, .events = POLLIN };
	s->watch[WATCH_INIT] = (struct pollfd){ .fd = socket, .events = POLLIN };
	return s->init < 0 ? CLI_CANNOT : 0;
}

int restart_run(struct restart *r)
{
	struct session s = { .restart = r, .link = { .fd = -EBADF }, .init = -1 };
	double since = session_now();
	int code = restart_sysv_collect(r);

	if (!code)
		code = restart_ipc_check(r);
	if (!code)
		code = restart_shared_create(r);
	if (!code)
		code = restart_tree_link(r);
	if (!code)
		code = restart_walk_prepare(r);
	if (!code)
		code = session_start_coordinator(&s);
	if (code)
		goto out;
	code = restart_trees_settle(r, session_keep_alive, &s);
	if (!code)
		code = restart_files_settle(r, session_keep_alive, &s);
	if (code) {
		end_capsule(&s);
		goto out;
	}
	for (size_t i = 0; i < r->count; i++)
		s.roots += !r->processes[i].parent;
	r->sets_terminal = may_set_terminal(r);
	if (isatty(STDERR_FILENO) && !r->conducted)
		fprintf(stderr, "fermata: job %s: %zu process%s, %.1f MiB from %s\n", r->job, r->count, r->count == 1 ? "" : "es",
			(double)r->memory / 1048576.0, r->checkpoint);
	s.watch[WATCH_SIGNAL] = (struct pollfd){ .fd = watch_signals(), .events = POLLIN };
	s.watch[WATCH_LINK] = (struct pollfd){ .fd = s.link.fd, .events = POLLIN };
	s.watch[WATCH_ORDERS] = (struct pollfd){ .fd = r->orders_fd, .events = POLLIN };
	code = start_capsule(&s);
	if (code)
		end_capsule(&s);
	else
		code = conduct(&s, since);
out:
	restart_walk_free(r);
	link_close(&s.link);
	return code;
}
