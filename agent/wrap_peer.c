/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pid of a unix socket's other side, as it was before a restart: base/peer_link.h. Servers ask for it once a connection, to know their clients. User and group are the kernel's own: all of a job have the same. No state.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/wrap.h"
#include "base/peer_link.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* kernel 6.5 */
#endif

#define PATH_SIZE (sizeof(agent.jobdir) + 32)

static int link_path(int fd, char path[PATH_SIZE])
{
	struct stat st;
	int r = (int)RAW2(SYS_fstat, fd, &st);

	if (!r)
		fm_format(path, PATH_SIZE, "%s/" PEER_LINK_PREFIX "%lu", agent.jobdir, st.st_ino);
	return r;
}

static int number(const char **at)
{
	int n = 0;

	while (**at >= '0' && **at <= '9')
		n = n * 10 + *(*at)++ - '0';
	return n;
}

/* What is said for @pid, which the kernel says of @fd. */
static pid_t shown(int fd, pid_t pid)
{
	char path[PATH_SIZE], text[32];
	const char *at = text;
	long n = link_path(fd, path);

	if (!n)
		n = RAW4(SYS_readlinkat, AT_FDCWD, path, text, sizeof(text) - 1);
	if (n <= 0)
		return pid;
	text[n] = 0;
	if (number(&at) != pid || *at++ != ' ')
		return pid;
	return number(&at);
}

static int kernel_says(int fd, pid_t *ret)
{
	struct ucred c = { 0 };
	socklen_t length = sizeof(c);
	int r = (int)RAW5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &c, &length);

	*ret = c.pid;
	return r;
}

int fermata_peer_pid(int fd)
{
	pid_t pid;
	int r = kernel_says(fd, &pid);

	return r ? r : shown(fd, pid);
}

int fermata_peer_restore(int fd, int pid)
{
	char path[PATH_SIZE], text[32];
	pid_t now;
	int r = kernel_says(fd, &now);

	if (r || now == pid)
		return r;
	r = link_path(fd, path);
	if (r)
		return r;
	fm_format(text, sizeof(text), "%d %d", now, pid);
	RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
	return (int)RAW3(SYS_symlinkat, text, AT_FDCWD, path);
}

/* The kernel's is of whom it names. */
static int show_pidfd(int fd, int *pidfd)
{
	pid_t now, pid;

	if (kernel_says(fd, &now))
		return 0;
	pid = shown(fd, now);
	if (pid == now)
		return 0;
	raw_close(*pidfd);
	*pidfd = (int)RAW2(SYS_pidfd_open, pid, 0);
	return *pidfd < 0 ? *pidfd : 0;
}

/* The kernel is asked again in enter: before that a restart may have been, and it named another. Who has closed @fd meanwhile, in another thread, gets what it said. */
EXPORT int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict length)
{
	struct ucred *c = value;
	int r, pid;

	WRAP_READY(getsockopt);
	r = real.getsockopt(fd, level, name, value, length);
	if (likely(r || level != SOL_SOCKET || (name != SO_PEERCRED && name != SO_PEERPIDFD)) || !agent.active || *length < sizeof(c->pid))
		return r;
	fermata_enter();
	pid = name == SO_PEERCRED ? fermata_peer_pid(fd) : -1;
	if (pid >= 0)
		c->pid = pid;
	if (name == SO_PEERPIDFD)
		r = show_pidfd(fd, value);
	fermata_leave();
	if (!r)
		return 0;
	errno = -r;
	return -1;
}
