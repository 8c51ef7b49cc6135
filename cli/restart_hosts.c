/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job of several hosts brought back by one command: a restart for each host, here (a capsule each, for pids may coincide) or on another machine (--hosts, by ssh), with one coordinator.
 *
 *   fermata restart --+-- fermata restart, host a: a child   -- capsule
 *    | coordinator    +-- fermata restart, host b: a child   -- capsule
 *    |                '-- ssh machine fermata restart --host c --conducted
 *    '- says when the restart is complete, or why it is not
 *
 * Each has its orders: a pipe, or ssh's standard input, on which go the signals that it is to pass on, a byte each. Its end is the end of that part: so whatever becomes of the
 * command, all ends with it. What the terminal sends reaches the children by themselves, in our process group; one of them has the terminal.
 *
 * Owns the parts, their orders and the coordinator's link.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/protect.h"
#include "cli/remote.h"
#include "cli/restart_session.h"

#define WORD_GRACE_MS 1000

struct part {
	size_t host;
	const char *machine; /* NULL: here */
	pid_t pid;
	int orders; /* -1: they have ended */
	bool ended;
};

struct conductor {
	struct session session; /* its link, and what the coordinator has said */
	struct restart *restart;
	struct restart_where *where;
	char address[128]; /* where the coordinator listens for other machines; empty: nowhere */
	struct part *parts;
	size_t count;
	sigset_t mask; /* our caller's */
	int signal_fd;
	bool interrupted, ending;
	int code; /* the first status of a part that is not 0 */
};

static const char *name_of(const struct conductor *c, const struct part *p)
{
	return c->restart->manifest->hosts[p->host].name;
}

/* ---- the parts ---- */

/* In the child. */
static _Noreturn void part_here(struct conductor *c, const struct part *p, int orders)
{
	struct restart *r = c->restart;
	size_t front = r->debugged ? r->debugged->host : c->parts[0].host;

	link_close(&c->session.link);
	for (size_t i = 0; i < c->count; i++)
		if (c->parts[i].orders >= 0)
			close(c->parts[i].orders); /* so that they end with the command, not with us */
	r->conducted = true;
	r->background = p->host != front;
	r->orders_fd = orders;
	r->ready_fd = -1;
	restart_choose_host(r, p->host);
	exit(restart_one(r));
}

static _Noreturn void part_there(const struct conductor *c, const struct part *p, int orders)
{
	dup2(orders, STDIN_FILENO);
	restart_where_exec(c->restart, p->host, p->machine, c->address);
	_exit(CLI_CANNOT);
}

static int part_begin(struct conductor *c, struct part *p)
{
	int orders[2];

	if (pipe2(orders, O_CLOEXEC) < 0) {
		warn("the pipe to the restart of host %s", name_of(c, p));
		return CLI_CANNOT;
	}
	fflush(NULL);
	p->pid = fork();
	if (p->pid == 0) {
		close(orders[1]);
		close(c->signal_fd);
		sigprocmask(SIG_SETMASK, &c->mask, NULL);
		p->machine ? part_there(c, p, orders[0]) : part_here(c, p, orders[0]);
	}
	close(orders[0]);
	p->orders = orders[1];
	p->ended = p->pid < 0;
	if (p->pid < 0)
		warn("the restart of host %s", name_of(c, p));
	return p->pid < 0 ? CLI_CANNOT : 0;
}

static void end_all(struct conductor *c)
{
	c->ending = true;
	for (size_t i = 0; i < c->count; i++) {
		if (c->parts[i].orders >= 0)
			close(c->parts[i].orders);
		c->parts[i].orders = -1;
	}
}

static bool all_ended(const struct conductor *c)
{
	for (size_t i = 0; i < c->count; i++)
		if (!c->parts[i].ended)
			return false;
	return true;
}

/* ---- what they come to ---- */

/* Before the restart is complete. Who has failed has said why; the others are ended since then. */
static void judge_restart(struct conductor *c, const struct part *p, int status)
{
	if (status == CLI_DAMAGED || !c->code)
		c->code = status ? status : CLI_CANNOT;
	if (!c->ending && !c->session.failed && !c->interrupted)
		warnx("host %s%s%s did not come back (exit status %d): the restart is given up, the checkpoint is as it was", name_of(c, p),
		      p->machine ? " on " : "", p->machine ? p->machine : "", status);
	c->session.failed = true;
	end_all(c);
}

/* A program that fails takes the job with it, where that comes back. */
static void judge_run(struct conductor *c, const struct part *p, int status)
{
	char how[80];

	if (!c->code)
		c->code = status;
	if (!c->restart->on_failure || c->ending || c->interrupted || !protect_is_failure(status << 8))
		return;
	protect_describe(status << 8, how, sizeof(how));
	dprintf(c->restart->ready_fd, "a program on host %s %s", name_of(c, p), how);
	end_all(c);
}

/* A part may run already, and have ended, when the coordinator's word on that is still on its way to us. */
static void await_word(struct conductor *c)
{
	struct pollfd f = { .fd = c->session.watch[WATCH_LINK].fd < 0 ? -1 : c->session.link.fd, .events = POLLIN };

	if (!c->session.failed && f.fd >= 0 && poll(&f, 1, WORD_GRACE_MS) > 0)
		session_hear_coordinator(&c->session);
}

static void reap(struct conductor *c)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
		for (size_t i = 0; i < c->count; i++) {
			struct part *p = &c->parts[i];

			if (p->pid != pid || p->ended)
				continue;
			if (WIFSTOPPED(status)) { /* so that the shell sees it */
				raise(SIGSTOP);
				continue;
			}
			p->ended = true;
			status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			if (!c->session.complete)
				await_word(c);
			if (c->session.complete)
				judge_run(c, p, status);
			else
				judge_restart(c, p, status);
		}
}

/* ---- signals ---- */

static void pass_on(struct conductor *c, const struct signalfd_siginfo *info)
{
	unsigned char sig = (unsigned char)info->ssi_signo;

	for (size_t i = 0; i < c->count; i++) /* the terminal's have reached those who are here */
		if (c->parts[i].orders >= 0 && (c->parts[i].machine || info->ssi_code != SI_KERNEL))
			(void)!write(c->parts[i].orders, &sig, 1);
}

static void hear_signal(struct conductor *c)
{
	struct signalfd_siginfo info;

	if (read(c->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGCHLD:
		reap(c);
		return;
	case SIGTSTP:
		if (info.ssi_code == SI_KERNEL)
			raise(SIGSTOP);
		break;
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
	case SIGQUIT:
		c->interrupted = true;
		break;
	default:
		if (info.ssi_signo == (uint32_t)options_signal_number(c->restart->on_signal))
			return;
		break;
	}
	pass_on(c, &info);
}

static int watch_signals(struct conductor *c)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD, SIGALRM };
	sigset_t set, more;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		sigaddset(&set, wanted[i]);
	more = set;
	sigaddset(&more, SIGPIPE); /* a part that has just ended hears no orders */
	sigaddset(&more, SIGTTOU);
	sigprocmask(SIG_BLOCK, &more, &c->mask);
	c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->signal_fd < 0 ? CLI_CANNOT : 0;
}

/* ---- the command ---- */

/* Our address as the first of the other machines sees it. False: there is none. */
static bool own_address(const struct conductor *c, char *ret, size_t size)
{
	const struct restart *r = c->restart;
	char address[96];

	for (size_t i = 0; i < r->manifest->host_count; i++) {
		const char *machine = r->chosen[i] ? c->where[i].machine : NULL;

		if (!machine || restart_where_address(machine, address, sizeof(address)) < 0)
			continue;
		snprintf(ret, size, strchr(address, ':') ? "[%s]:0" : "%s:0", address);
		return true;
	}
	return false;
}

/* Where other machines find the coordinator: it is told to listen there. Where nothing is known of them they have to have the runtime directory in common with us. */
static int learn_address(struct conductor *c)
{
	const char *wanted = c->restart->listen;
	struct job job = { .link.fd = -EBADF };
	char own[128];
	int err = 0;

	if (!wanted && c->restart->hosts_file && own_address(c, own, sizeof(own)))
		wanted = own;
	if (!wanted)
		return 0;
	err = job_connect(c->restart->job, &job);
	if (!err)
		err = job_listen(&job, wanted, c->address, sizeof(c->address));
	job_close(&job);
	return err < 0 ? CLI_CANNOT : 0;
}

static int begin_all(struct conductor *c)
{
	struct restart *r = c->restart;
	int code = 0;

	for (size_t i = 0; i < r->manifest->host_count; i++)
		if (r->chosen[i])
			c->parts[c->count++] = (struct part){ .host = i, .machine = c->where[i].machine, .orders = -1, .ended = true };
	for (size_t i = 0; i < c->count && !code; i++)
		code = part_begin(c, &c->parts[i]);
	return code;
}

static void listen_once(struct conductor *c)
{
	struct pollfd f[] = {
		{ .fd = c->signal_fd, .events = POLLIN },
		{ .fd = c->session.complete || c->session.watch[WATCH_LINK].fd < 0 ? -1 : c->session.link.fd, .events = POLLIN },
	};

	if (poll(f, sizeof(f) / sizeof(f[0]), -1) < 0)
		return;
	if (f[1].revents) {
		session_hear_coordinator(&c->session);
		if (c->session.failed)
			end_all(c);
	}
	if (f[0].revents)
		hear_signal(c);
}

static int conduct(struct conductor *c)
{
	struct restart *r = c->restart;
	bool terminal = isatty(STDERR_FILENO), told = false;
	double since = session_now();

	if (terminal)
		fprintf(stderr, "fermata: job %s: %zu hosts from %s\n", r->job, c->count, r->checkpoint);
	while (!all_ended(c)) {
		listen_once(c);
		if (terminal && c->session.complete && !told)
			fprintf(stderr, "fermata: job %s goes on after %.2f s\n", r->job, session_now() - since);
		told |= c->session.complete;
	}
	if (!c->session.complete && c->interrupted)
		warnx("interrupted; the checkpoint is as it was");
	return c->session.complete || c->code ? c->code : CLI_CANNOT;
}

int restart_hosts_run(struct restart *r)
{
	struct conductor c = { .restart = r, .session = { .restart = r, .link = { .fd = -EBADF } }, .signal_fd = -1 };
	int code = restart_where_read(r, &c.where);

	if (code)
		return code;
	c.parts = calloc(r->manifest->host_count, sizeof(*c.parts));
	code = c.parts ? session_start_coordinator(&c.session) : CLI_CANNOT;
	if (!code)
		code = learn_address(&c);
	if (!code)
		code = watch_signals(&c);
	if (!code && (code = begin_all(&c)))
		end_all(&c);
	if (c.count) {
		int status = conduct(&c);

		code = code ? code : status;
	}
	if (c.session.link.fd >= 0 && !c.session.complete)
		link_send(&c.session.link, MSG_QUIT, NULL, 0);
	link_close(&c.session.link);
	restart_where_free(c.where, r->manifest->host_count);
	free(c.parts);
	return code;
}
