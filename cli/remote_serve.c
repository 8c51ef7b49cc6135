/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ssh begins on the other host: `fermata remote --serve`, outside of the job. It reads the order, reaches the stand-in, and forks what joins the job and
 * becomes the command's parent. It waits for that one, so that the login lasts as long as the command, and is of no other use: it is not
 * part of any checkpoint, and a restart does without it.
 *
 * The proof is sent when the job is joined and not before: the stand-in keeps a checkpoint from going on until it has it, and then both ends of the
 * connection are the job's. No state.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/launch_apart.h"
#include "cli/launch_become.h"
#include "cli/remote.h"
#include "coordinator/rundir.h"

#define SERVE_CONNECT_MS 10000

static int serve_connect_to(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	struct pollfd f = { .fd = fd, .events = POLLOUT };
	const int room = REMOTE_SOCKET_ROOM, on = 1;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		err = errno;
		if (err == EINPROGRESS)
			err = poll(&f, 1, SERVE_CONNECT_MS) == 1 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) ? err : ETIMEDOUT;
	}
	if (!err && fcntl(fd, F_SETFL, 0) < 0)
		err = errno;
	if (!err)
		return fd;
	close(fd);
	return -err;
}

static int serve_connect(const struct remote_order *o)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
	struct addrinfo *a = NULL;
	char port[16];
	int r;

	snprintf(port, sizeof(port), "%u", o->port);
	if (getaddrinfo(o->address, port, &hints, &a))
		return -EPROTO;
	r = serve_connect_to(a);
	freeaddrinfo(a);
	if (r < 0)
		log_error("%s port %s, where ssh was begun, cannot be reached from here: %s", o->address, port, strerror(-r));
	return r;
}

struct serve {
	struct remote_order order;
	int connection, token_fd;
};

/* The job is joined: no checkpoint can pass us by any more. */
static int serve_joined(void *arg)
{
	struct serve *s = arg;
	uint8_t proof[REMOTE_PROOF_SIZE];
	int null = open("/dev/null", O_RDWR);

	remote_channel_proof(s->order.token, proof);
	if (null < 0 || raw_write_all(s->connection, proof, sizeof(proof)) < 0)
		return -EIO;
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (null > 2)
		close(null);
	fcntl(s->connection, F_SETFD, 0);
	fcntl(s->token_fd, F_SETFD, 0);
	return 0;
}

/* In the child. An exit status. */
static int serve_member(struct serve *s)
{
	char connection[16], token[16], jobdir[RUNDIR_PATH_MAX];
	char *argv[] = { "fermata", "remote", "--command", connection, token, (char *)s->order.command, NULL };
	struct job_options options = { .name = s->order.job };

	bool here = rundir_job_check(s->order.job) == 0 && rundir_find(s->order.job, jobdir) == 0;

	if (!here && !*s->order.coordinator) {
		log_error("job %s does not run here, and is not to be reached from here", s->order.job);
		return CLI_FAILED;
	}
	options.coordinator = here ? NULL : s->order.coordinator;
	snprintf(connection, sizeof(connection), "%d", s->connection);
	snprintf(token, sizeof(token), "%d", s->token_fd);
	return launch_member(&options, argv, serve_joined, s);
}

int remote_serve(void)
{
	struct serve s = { 0 };
	int r = remote_order_read(0, &s.order), status = 0;
	pid_t pid;

	if (r < 0) {
		log_error("remote --serve: what to do was not said (%s): this is for fermata's own use of ssh", strerror(-r));
		return CLI_FAILED;
	}
	for (char **e = s.order.environment; *e; e++)
		putenv(*e);
	s.connection = serve_connect(&s.order);
	s.token_fd = remote_token_hand_on(s.order.token);
	if (s.connection < 0 || s.token_fd < 0)
		return CLI_FAILED;
	launch_apart();
	setsid();
	pid = fork();
	if (pid == 0) {
		setsid();
		_exit(serve_member(&s));
	}
	close(s.connection);
	close(s.token_fd);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
}
