/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A restart's run, and its job's after it:
 *
 *   coordinator (a daemon)  ->  capsule with its processes  ->  all memory is in and whole: the gate opens
 *   ->  the coordinator says "complete"  ->  wait: signals and the terminal are passed on, the roots' exit statuses become ours
 *
 * Five things are listened to in one loop: the capsule's init (socket), the restorers (log pipe), the coordinator (link), signals (restart_session_signals.c), and the orders
 * of who conducts a restart of several hosts. Until the restart is complete any failure ends the capsule: its init is killed, and the kernel kills all in it.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/protect.h"
#include "cli/restart.h"
#include "cli/restart_session.h"

#define EARLY_GRACE_MS 5000 /* of a busy machine: the coordinator says in a moment what is the matter, unless the process has never come to it */

double session_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the capsule ---- */

static const char *name_of(const struct restart *r, int32_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if ((int32_t)r->processes[i].info->pid == pid)
			return r->processes[i].info->comm;
	return "?";
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

/* Who looks at us would take it for one that hangs. */
static void say_stopped(struct session *s, uint32_t pid)
{
	struct restart_process *p = restart_find_process(s->restart, pid);

	if (!p || !p->info->stopped || p->stop_said)
		return;
	p->stop_said = true;
	warnx("process %u (%s) is stopped, as it was at the checkpoint: %skill -CONT %d lets it go on", pid, p->info->comm, isatty(STDIN_FILENO) ? "fg, or " : "", (int)getpid());
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
		say_stopped(s, (uint32_t)m.pid);
		if (!s->has_terminal && !isatty(STDIN_FILENO))
			break;
		session_take_terminal(s);
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
		restart_wanted_withdraw(s->restart); /* all threads are made */
		restart_walk_unlock(s->restart);
	}
	if (restart_gate_is_due(&s->gate)) {
		restart_walk_lock(s->restart, session_keep_alive, s);
		restart_gate_open(&s->gate);
	}
	s->failed |= s->gate.failed;
	if (!s->failed && !s->complete)
		session_keep_alive(s);
}

void session_end_debugging(struct session *s)
{
	s->gdb = 0;
	restart_debug_over(s->restart, s->init);
	session_give_terminal(s);
}

/* Who stands still is told; the debugger has the terminal before the programs have. */
static void begin_debugging(struct session *s)
{
	restart_debug_tell(s->restart, s->init);
	if (s->restart->debug_pid)
		s->gdb = restart_debug_start(s->restart, s->init);
	if (s->gdb < 0)
		session_end_debugging(s);
}

/* Their end: whoever conducts is gone, or wants no more of us. */
static void hear_orders(struct session *s)
{
	unsigned char sig;

	if (read(s->watch[WATCH_ORDERS].fd, &sig, 1) == 1) {
		session_take_signal(s, sig, false);
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

static void listen_once(struct session *s)
{
	int limit = s->complete ? -1 : s->interrupt ? SESSION_INTERRUPT_GRACE_MS : s->early.pid ? EARLY_GRACE_MS : -1;

	if (poll(s->watch, WATCH_COUNT, limit) < 0)
		return;
	if (s->watch[WATCH_LOG].revents)
		hear_restorers(s);
	if (s->watch[WATCH_INIT].revents)
		hear_init(s);
	if (s->watch[WATCH_LINK].revents)
		session_hear_coordinator(s);
	if (s->watch[WATCH_SIGNAL].revents)
		session_hear_signal(s);
	if (s->watch[WATCH_ORDERS].revents)
		hear_orders(s);
	judge_early(s);
	session_judge_interrupt(s);
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
	if (!s->gdb && !session_terminal_is_taken(s))
		session_give_terminal(s);
	while (!s->init_ended)
		listen_once(s);
	while (s->watch[WATCH_INIT].fd >= 0)
		hear_init(s);
	if (s->gdb) {
		waitpid(s->gdb, NULL, 0); /* it was in the capsule */
		session_end_debugging(s);
	}
	session_take_terminal(s);
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
		code = restart_link(r);
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
	r->sets_terminal = session_may_set_terminal(r);
	if (isatty(STDERR_FILENO) && !r->conducted)
		fprintf(stderr, "fermata: job %s: %zu process%s, %.1f MiB from %s\n", r->job, r->count, r->count == 1 ? "" : "es",
			(double)r->memory / 1048576.0, r->checkpoint);
	s.watch[WATCH_SIGNAL] = (struct pollfd){ .fd = session_watch_signals(), .events = POLLIN };
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
