/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A restart's run: signals, which are passed on to the programs, and the terminal, which is theirs while they run, if it is ours. Before the restart is complete a signal that asks to end
 * gives it up. Owns session.interrupt and .has_terminal.
 */
#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/restart_session.h"

/* ---- the terminal ---- */

static void tell_init(const struct session *s, uint32_t word, int32_t pid, int32_t value)
{
	struct capsule_message m = { word, pid, value };

	(void)send(s->watch[WATCH_INIT].fd, &m, sizeof(m), MSG_NOSIGNAL);
}

bool session_terminal_is_taken(struct session *s)
{
	const struct restart *r = s->restart;

	for (size_t i = 0; i < r->count && !s->has_terminal; i++)
		s->has_terminal = r->sets_terminal && !r->debug_pid && r->processes[i].info->foreground;
	return s->has_terminal;
}

/* A shell's rule: the terminal is ours to give if our own group has it. It goes to the group that had it last; to the first root's, if none had. */
void session_give_terminal(struct session *s)
{
	if (s->restart->background || !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp())
		return;
	s->has_terminal = true;
	if (!s->foreground || tcsetpgrp(STDIN_FILENO, s->foreground) < 0)
		tell_init(s, CAPSULE_FOREGROUND, 0, 0);
}

/* The first of our streams that is one, in the order of agent/fd_stdio.c. What no session of ours has is nobody's. */
bool session_may_set_terminal(const struct restart *r)
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

void session_take_terminal(struct session *s)
{
	if (s->has_terminal) {
		s->foreground = tcgetpgrp(STDIN_FILENO);
		tcsetpgrp(STDIN_FILENO, getpgrp());
	}
	s->has_terminal = false;
}

/* ---- signals ---- */

int session_watch_signals(void)
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

void session_take_signal(struct session *s, int sig, bool from_terminal)
{
	if (!s->complete && (sig == SIGINT || sig == SIGTERM || sig == SIGHUP)) {
		s->interrupt = sig;
		s->interrupt_since = session_now();
		return;
	}
	s->to_end |= sig == SIGINT || sig == SIGQUIT || sig == SIGTERM;
	tell_init(s, CAPSULE_SIGNAL, from_terminal, sig);
}

void session_hear_signal(struct session *s)
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
			session_end_debugging(s);
		return;
	case SIGTSTP:
		if (from_terminal)
			raise(SIGSTOP); /* the terminal has stopped the programs of our group */
		break;
	case SIGCONT:
		session_give_terminal(s);
		tell_init(s, CAPSULE_SIGNAL, 1, SIGCONT);
		return;
	default:
		if (info.ssi_signo == (uint32_t)options_signal_number(s->restart->on_signal))
			return; /* who sent it to our whole group means the process that stays with us */
		break;
	}
	session_take_signal(s, (int)info.ssi_signo, from_terminal);
}

/* The programs may run already, and the coordinator's word on that be on its way: then it is theirs. */
void session_judge_interrupt(struct session *s)
{
	if (!s->interrupt || s->failed)
		return;
	if (s->complete) {
		tell_init(s, CAPSULE_SIGNAL, 0, s->interrupt);
		s->interrupt = 0;
	} else if (session_now() - s->interrupt_since >= SESSION_INTERRUPT_GRACE_MS / 1000.0) {
		if (!s->restart->conducted)
			warnx("interrupted; the checkpoint is as it was");
		s->failed = true;
	}
}
