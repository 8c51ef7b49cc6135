/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command's parent on the other host: what sshd would be to it. The command is the user's shell with the text as it came, in a session of its own,
 * with pipes for its input, output and error output. When it has ended, and its outputs have, its status is said. When the connection ends before, the
 * pipes are closed and the command is left to itself, as sshd does without a terminal.
 *
 * Its own status is 0 always: what has failed is known where the stand-in ends. Owns the child.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/remote.h"

static volatile sig_atomic_t command_child_ended;

static void command_on_child(int number)
{
	(void)number;
	command_child_ended = 1;
}

static _Noreturn void command_become(const char *command, const int own[3], const sigset_t *mask)
{
	const char *shell = getenv("SHELL"), *slash;

	for (int i = 0; i < 3; i++)
		dup2(own[i], i);
	setsid();
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	/* It is the first shell of this login, not one below that which began us. */
	unsetenv("SHLVL");
	shell = shell && *shell ? shell : "/bin/sh";
	slash = strrchr(shell, '/');
	execl(shell, slash ? slash + 1 : shell, "-c", command, NULL);
	fprintf(stderr, "%s: %s\n", shell, strerror(errno));
	_exit(1);
}

/* @fds: our ends. */
static pid_t command_begin(const char *command, int fds[3], const sigset_t *mask)
{
	int own[3];
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) < 0)
			return -errno;
		own[i] = ends[i > 0];
		fds[i] = ends[i == 0];
	}
	pid = fork();
	if (pid == 0)
		command_become(command, own, mask);
	for (int i = 0; i < 3; i++)
		close(own[i]);
	return pid < 0 ? -errno : pid;
}

/* The child's exit status, once it has ended; else -EAGAIN. */
static int command_status(pid_t pid)
{
	int status;

	if (!command_child_ended || waitpid(pid, &status, WNOHANG) != pid)
		return -EAGAIN;
	return WIFEXITED(status) ? WEXITSTATUS(status) : REMOTE_FAILED;
}

static void command_say_exit(struct remote_channel *c, struct remote_pump *p, int connection, int status, const sigset_t *mask)
{
	uint32_t number = (uint32_t)status;
	int r = 0;

	while (!r && !remote_channel_has_room(c))
		r = remote_pump_turn(p, mask);
	if (r)
		return;
	remote_channel_put(c, REMOTE_EXIT, &number, sizeof(number));
	while (!r && !remote_channel_is_flushed(c))
		r = remote_pump_turn(p, mask);
	shutdown(connection, SHUT_WR);
	/* Closing with something unread would take back what was sent. */
	while (!r)
		r = remote_pump_turn(p, mask);
}

int remote_command(int connection, int token_fd, const char *command)
{
	struct sigaction on_child = { .sa_handler = command_on_child };
	int fds[3], r, status = -EAGAIN;
	uint8_t token[REMOTE_TOKEN_SIZE];
	struct remote_channel *c;
	struct remote_pump *p;
	sigset_t mask, child;
	pid_t pid;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &mask);
	sigaction(SIGCHLD, &on_child, NULL);
	r = remote_token_take(token_fd, token);
	pid = r < 0 ? r : command_begin(command, fds, &mask);
	if (pid < 0)
		return CLI_OK; /* the stand-in sees the connection end */
	signal(SIGPIPE, SIG_IGN);
	c = remote_channel_make(connection, token, false);
	p = remote_pump_make(c, fds, 1u << 1 | 1u << 2);
	r = p ? 0 : -ENOMEM;
	while (!r && (status < 0 || !remote_pump_is_read(p))) {
		r = remote_pump_turn(p, &mask);
		if (status < 0)
			status = command_status(pid);
	}
	if (!r)
		command_say_exit(c, p, connection, status, &mask);
	return CLI_OK;
}
