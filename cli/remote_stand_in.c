/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stand-in: what the program that began ssh has in ssh's place. Its input, output and error output are those of the command on the other host, and
 * it ends as ssh would: with the command's status, or 255 if that was killed, if the connection is gone, or upon a signal that ends ssh. The
 * command then finds its input at an end and its output closed. No state.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/remote.h"

static void stand_in_end(int number)
{
	(void)number;
	_exit(REMOTE_FAILED);
}

static void stand_in_signals(void)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (signal(ends[i], stand_in_end) == SIG_IGN)
			signal(ends[i], SIG_IGN);
}

int remote_stand_in(int connection, int token_fd, bool no_input, const char *host)
{
	uint8_t token[REMOTE_TOKEN_SIZE];
	struct remote_pump *p;
	int fds[3] = { 0, 1, 2 }, status, r = remote_token_take(token_fd, token);
	sigset_t none;

	sigemptyset(&none);
	if (r < 0)
		return REMOTE_FAILED;
	stand_in_signals();
	if (no_input)
		fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	p = remote_pump_make(remote_channel_make(connection, token, true), fds, 1u << 0);
	if (!p)
		return REMOTE_FAILED;
	while (r == 0 && !remote_pump_has_exit(p, &status))
		r = remote_pump_turn(p, &none);
	remote_pump_finish(p);
	if (remote_pump_has_exit(p, &status))
		return status;
	fprintf(stderr, "Connection to %s closed by remote host.\r\n", host);
	return REMOTE_FAILED;
}
