/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose the other end of a unix socket is (SO_PEERCRED, SO_PEERPIDFD): of a connection the one that listened and the one that connected; of a pair who made it, although its two ends are others', or it has
 * ended since. Who gets a socket handed on, or has executed another program since, is told the same; so is who looks at one whose other end is closed. A connection made later has its own.
 */
#include "feature.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* kernel 6.5 */
#endif

static pid_t pid_of(int pidfd)
{
	char path[64], line[128];
	pid_t pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	f = fopen(path, "r");
	CHECK(f);
	while (!pid && fgets(line, sizeof(line), f))
		sscanf(line, "Pid: %d", &pid);
	CHECK(fclose(f) == 0);
	return pid;
}

/* None of a process that has ended; newer kernels have one that says so. */
static void check_pidfd(int fd, pid_t pid)
{
	int pidfd;
	socklen_t length = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) < 0) {
		CHECK(errno == ENOPROTOOPT || (kill(pid, 0) < 0 && (errno == ESRCH || errno == EINVAL)));
		return;
	}
	CHECK((pid_of(pidfd) == pid || kill(pid, 0) < 0) && close(pidfd) == 0);
}

static pid_t peer_of(int fd)
{
	struct ucred c = { 0 };
	socklen_t length = sizeof(c);

	CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) == 0 && length == sizeof(c) && c.uid == getuid() && c.gid == getgid());
	check_pidfd(fd, c.pid);
	return c.pid;
}

static struct sockaddr_un address(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "listener");
	return a;
}

static int dial(void)
{
	struct sockaddr_un a = address();
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static void hand_on(int to, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(to, &m, 0) == 1);
}

static int handed(int from)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd;

	if (recvmsg(from, &m, 0) != 1)
		return -1;
	CHECK(CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* Executes itself again and again: "executed FD PID". */
static void execute_again(const char *fd, const char *pid)
{
	CHECK(peer_of(atoi(fd)) == atoi(pid));
	if (feature_finished())
		_exit(0);
	for (int i = 0; i < 20; i++)
		feature_work();
	execl("/proc/self/exe", "peers", "executed", fd, pid, NULL);
	CHECK(!"exec");
}

/* Looks at what the first process hands to it. */
static void look_at_handed(int from, pid_t expected)
{
	int fd;

	while ((fd = handed(from)) >= 0) {
		CHECK(peer_of(fd) == expected && close(fd) == 0);
		CHECK(write(from, "", 1) == 1);
	}
	_exit(0);
}

/* Greets, or it would be refused for the moment what nobody has accepted yet and has something in it. */
static void serve(int listener, pid_t client)
{
	int fd = accept(listener, NULL, NULL);
	pid_t from = client;

	CHECK(fd >= 0);
	while (from) {
		int later = accept(listener, NULL, NULL);

		CHECK(later >= 0 && write(later, "", 1) == 1 && peer_of(fd) == client);
		CHECK(read(later, &from, sizeof(from)) == sizeof(from) && (!from || peer_of(later) == from) && close(later) == 0);
	}
	_exit(0);
}

static void visit(pid_t server, pid_t says)
{
	int fd = dial();
	char byte;

	CHECK(read(fd, &byte, 1) == 1 && peer_of(fd) == server && write(fd, &says, sizeof(says)) == sizeof(says) && close(fd) == 0);
}

/* One end of each pair, none of which the maker has any more. */
static void keep_ends(int pairs[3][2], int which, pid_t maker)
{
	for (int i = 0; i < 3; i++)
		CHECK(close(pairs[i][!which]) == 0);
	for (; !feature_finished(); feature_work())
		for (int i = 0; i < 3; i++)
			CHECK(peer_of(pairs[i][which]) == maker);
	_exit(0);
}

/* Of a process that has ended by now, as its other end is closed. */
static int ended_pair(pid_t *maker)
{
	int ways[2], status, fd;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ways) == 0);
	*maker = fork();
	CHECK(*maker >= 0);
	if (*maker == 0) {
		int ends[2];

		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		hand_on(ways[1], ends[0]);
		_exit(0);
	}
	fd = handed(ways[0]);
	CHECK(fd >= 0 && waitpid(*maker, &status, 0) == *maker && status == 0 && close(ways[0]) == 0 && close(ways[1]) == 0);
	return fd;
}

static pid_t child(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	return pid;
}

static void begin_pairs(pid_t ret[2])
{
	static const int types[3] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	pid_t self = getpid();
	int pairs[3][2];

	for (int i = 0; i < 3; i++)
		CHECK(socketpair(AF_UNIX, types[i], 0, pairs[i]) == 0);
	for (int which = 0; which < 2; which++)
		if ((ret[which] = child()) == 0)
			keep_ends(pairs, which, self);
	for (int i = 0; i < 3; i++)
		CHECK(close(pairs[i][0]) == 0 && close(pairs[i][1]) == 0);
}

/* *@ret is connected to it. */
static pid_t begin_server(int *ret)
{
	struct sockaddr_un a = address();
	int listening[2];
	pid_t self = getpid(), server;
	char byte;

	CHECK(pipe(listening) == 0);
	server = child();
	if (server == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 4) == 0);
		CHECK(write(listening[1], "", 1) == 1 && close(listening[0]) == 0 && close(listening[1]) == 0);
		serve(fd, self);
	}
	CHECK(close(listening[1]) == 0 && read(listening[0], &byte, 1) == 1 && close(listening[0]) == 0);
	*ret = dial();
	return server;
}

static pid_t begin_executing(int fd, pid_t expected)
{
	char number[16], pid[16];
	pid_t r;

	snprintf(number, sizeof(number), "%d", fd);
	snprintf(pid, sizeof(pid), "%d", expected);
	r = child();
	if (r == 0)
		execute_again(number, pid);
	return r;
}

static pid_t begin_looking(pid_t expected, int *ret_way)
{
	int ways[2];
	pid_t r;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ways) == 0);
	r = child();
	if (r == 0) {
		CHECK(close(ways[0]) == 0);
		look_at_handed(ways[1], expected);
	}
	CHECK(close(ways[1]) == 0);
	*ret_way = ways[0];
	return r;
}

int main(int argc, char **argv)
{
	pid_t self = getpid(), maker, server, pids[5];
	int orphan, connection, way, status;
	char byte;

	if (argc == 4)
		execute_again(argv[2], argv[3]);
	begin_pairs(pids);
	orphan = ended_pair(&maker);
	pids[2] = server = begin_server(&connection);
	pids[3] = begin_executing(connection, server);
	pids[4] = begin_looking(server, &way);
	feature_ready();
	do {
		visit(server, self);
		CHECK(peer_of(connection) == server && peer_of(orphan) == maker);
		hand_on(way, connection);
		CHECK(read(way, &byte, 1) == 1);
		feature_work();
	} while (feature_step());
	CHECK(close(way) == 0);
	visit(server, 0);
	for (int i = 0; i < 5; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
