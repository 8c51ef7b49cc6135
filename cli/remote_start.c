/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ssh outside of the job: not our child, for a checkpoint asks after the children of a member, but the child of a process that waits for it and says its
 * status. It stays in our session and process group: it asks for passwords on the terminal, and Ctrl-C ends it, as ever.
 *
 *   we --fork--> (ends at once) --fork--> waits, says the status --fork--> ssh b 'fermata remote --serve'
 *
 * Its input is the order, its output nobody's, its error output is kept: it is only said when it is known what becomes of it. Who comes to the listener is
 * the other side if it knows the token; then ssh is left to itself, and neither its end nor what it says matters any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/cli.h"
#include "cli/remote.h"

#define START_WORDS_MAX 256
#define START_CALLERS 8 /* connections that have not said yet who they are */
#define START_PATH_MAX 4096

static void (*start_sigpipe)(int); /* as our caller had it */

struct start_caller {
	int fd; /* 0: none */
	uint8_t said[REMOTE_PROOF_SIZE];
	size_t have;
};

/* Of what the loader preloads all but our agent. */
static void start_without_agent(void)
{
	const char *old = getenv("LD_PRELOAD");
	char *copy = old ? strdup(old) : NULL, *left = copy ? calloc(1, strlen(copy) + 1) : NULL, *at = NULL;

	for (char *word = left ? strtok_r(copy, ": ", &at) : NULL; word; word = strtok_r(NULL, ": ", &at)) {
		if (strstr(word, "libfermata.so"))
			continue;
		if (*left)
			strcat(left, ":");
		strcat(left, word);
	}
	if (left && *left)
		setenv("LD_PRELOAD", left, 1);
	else
		unsetenv("LD_PRELOAD");
}

static void start_environment(void)
{
	char name[64];

	for (char **e = environ; *e;) {
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, "FERMATA_", 8) || len >= sizeof(name)) {
			e++;
			continue;
		}
		snprintf(name, sizeof(name), "%.*s", (int)len, *e);
		unsetenv(name);
		e = environ;
	}
	start_without_agent();
}

/*
 * Any shell of the user's hands this to sh. Where there is no fermata at that place nothing is begun, and ssh ends.
 */
static int start_command(char *ret, size_t size)
{
	char exe[START_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n < 0)
		return -errno;
	exe[n] = 0;
	if (strpbrk(exe, "'\\!\"$`\n"))
		return -EINVAL;
	n = snprintf(ret, size, "exec /bin/sh -c 'test -x \"%s\" && exec \"%s\" remote --serve'", exe, exe);
	return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* In the process that stays with ssh: @in and @err are ssh's, @status where its end is said. */
static _Noreturn void start_ssh(const char *ssh, char **words, int in, int err, int status)
{
	int null = open("/dev/null", O_RDWR), wait_status = 0;
	pid_t pid;

	if (null < 0 || dup2(in, 0) < 0 || dup2(null, 1) < 0 || dup2(err, 2) < 0 || dup2(status, 3) < 0)
		_exit(1);
	syscall(SYS_close_range, 4, ~0u, 0);
	fcntl(3, F_SETFD, FD_CLOEXEC);
	start_environment();
	pid = fork();
	if (pid == 0) {
		signal(SIGPIPE, start_sigpipe);
		execvp(ssh, words);
		fprintf(stderr, "%s: %s\n", ssh, strerror(errno));
		_exit(127);
	}
	/* Its input and its error output end with ssh. */
	dup2(1, 0);
	dup2(1, 2);
	while (pid > 0 && waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
		;
	wait_status = pid < 0 ? 126 : WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
	raw_write_all(3, &wait_status, sizeof(wait_status));
	_exit(0);
}

struct start_pipes {
	int in[2], err[2], status[2];
};

static int start_fork(const char *ssh, char *const argv[], const struct remote_options *p, struct start_pipes *pipes)
{
	static char command[2 * START_PATH_MAX + 128];
	char *words[START_WORDS_MAX + 2];
	int r = p->command < START_WORDS_MAX ? start_command(command, sizeof(command)) : -E2BIG, n = 0;
	pid_t pid;

	if (r < 0)
		return r;
	remote_options_copy(argv, p, words);
	while (words[n])
		n++;
	words[n] = command;
	words[n + 1] = NULL;
	pid = fork();
	if (pid == 0) {
		if (fork() == 0)
			start_ssh(ssh, words, pipes->in[0], pipes->err[1], pipes->status[1]);
		_exit(0);
	}
	if (pid < 0)
		return -errno;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static void start_hear(struct remote_start *s, int fd)
{
	char rest[1024];
	size_t room = sizeof(s->said) - s->said_length;
	ssize_t n = read(fd, room ? s->said + s->said_length : rest, room ? room : sizeof(rest));

	if (n > 0 && room)
		s->said_length += (size_t)n;
}

static void start_accept(int listener, struct start_caller callers[START_CALLERS])
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; i < START_CALLERS; i++)
		if (!callers[i].fd) {
			callers[i] = (struct start_caller){ .fd = fd };
			return;
		}
	/* Who has said nothing for the longest time makes room. */
	close(callers[0].fd);
	memmove(callers, callers + 1, (START_CALLERS - 1) * sizeof(*callers));
	callers[START_CALLERS - 1] = (struct start_caller){ .fd = fd };
}

/* True: it is the other side. */
static bool start_hear_caller(struct start_caller *c, const uint8_t proof[REMOTE_PROOF_SIZE])
{
	ssize_t n = recv(c->fd, c->said + c->have, sizeof(c->said) - c->have, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	c->have += n > 0 ? (size_t)n : 0;
	if (c->have == sizeof(c->said) && !sodium_memcmp(c->said, proof, sizeof(c->said)))
		return true;
	if (n <= 0 || c->have == sizeof(c->said)) {
		close(c->fd);
		c->fd = 0;
	}
	return false;
}

/* One event. 1: s->connection; 0: nothing yet; -ECHILD: ssh has ended. */
static int start_turn(struct remote_start *s, const struct start_pipes *pipes, struct start_caller callers[START_CALLERS],
		      const uint8_t proof[REMOTE_PROOF_SIZE])
{
	struct pollfd f[START_CALLERS + 3];

	f[0] = (struct pollfd){ .fd = pipes->err[0], .events = POLLIN };
	f[1] = (struct pollfd){ .fd = pipes->status[0], .events = POLLIN };
	f[2] = (struct pollfd){ .fd = s->listener, .events = POLLIN };
	for (int i = 0; i < START_CALLERS; i++)
		f[i + 3] = (struct pollfd){ .fd = callers[i].fd ? callers[i].fd : -1, .events = POLLIN };
	if (poll(f, START_CALLERS + 3, -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (f[0].revents & POLLIN)
		start_hear(s, pipes->err[0]);
	for (int i = 0; i < START_CALLERS; i++)
		if (f[i + 3].revents && start_hear_caller(&callers[i], proof)) {
			s->connection = callers[i].fd;
			callers[i].fd = 0;
			return 1;
		}
	if (f[2].revents)
		start_accept(s->listener, callers);
	else if (f[1].revents && !(f[0].revents & POLLIN))
		return raw_read_all(pipes->status[0], &s->status, sizeof(s->status)) < 0 ? -EIO : -ECHILD;
	return 0;
}

static int start_wait(struct remote_start *s, const struct start_pipes *pipes, const struct remote_order *o)
{
	struct start_caller callers[START_CALLERS] = { 0 };
	uint8_t proof[REMOTE_PROOF_SIZE];
	int r;

	remote_channel_proof(o->token, proof);
	/* ssh that has failed already takes nothing: its status says why. */
	r = remote_order_write(pipes->in[1], o);
	close(pipes->in[1]);
	r = r == -EPIPE ? 0 : r;
	while (!r)
		r = start_turn(s, pipes, callers, proof);
	for (int i = 0; i < START_CALLERS; i++)
		if (callers[i].fd)
			close(callers[i].fd);
	return r == -ECHILD ? 0 : r;
}

int remote_start(const char *ssh, char *const argv[], const struct remote_options *p, const struct remote_order *o, struct remote_start *s)
{
	struct start_pipes pipes;
	int r;

	s->connection = -EBADF;
	start_sigpipe = signal(SIGPIPE, SIG_IGN);
	if (pipe2(pipes.in, O_CLOEXEC) < 0 || pipe2(pipes.err, O_CLOEXEC) < 0 || pipe2(pipes.status, O_CLOEXEC) < 0)
		return -errno;
	r = start_fork(ssh, argv, p, &pipes);
	close(pipes.in[0]);
	close(pipes.err[1]);
	close(pipes.status[1]);
	if (r == 0)
		r = start_wait(s, &pipes, o);
	close(pipes.err[0]);
	close(pipes.status[0]);
	signal(SIGPIPE, start_sigpipe);
	return r;
}
