/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that nobody holds: they were sent in a message and are not received yet. In unix sockets of each type, with bytes before and
 * behind them in a stream, in one so many that a look at the queue ends within what carries the descriptor; a file with its offset, both ends of a
 * pipe, one end of a connection, and a socket whose own queue holds a descriptor. One of the sockets is held by a child as well; one sender is gone.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MANY ((256u << 10) - 8)

static int types[3][2], many[2], gone, child_pipe[2];
static pid_t child;

static void send_fds(int to, const char *text, const int *fds, unsigned int n)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = { 0 };
	struct iovec v = { (char *)(uintptr_t)text, strlen(text) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	CHECK(sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

/* What comes next in one call of up to @room bytes is @text with @n descriptors. */
static void receive_fds(int from, const char *text, size_t room, int *fds, unsigned int n)
{
	char control[CMSG_SPACE(8 * sizeof(int))], buf[64];
	struct iovec v = { buf, room };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	if (got != (ssize_t)strlen(text) || memcmp(buf, text, strlen(text)))
		feature_fail("got %zd bytes \"%.*s\" in place of \"%s\" (errno %d)", got, got > 0 ? (int)got : 0, buf, text, errno);
	if (m.msg_flags & MSG_CTRUNC || !c != !n)
		feature_fail("\"%s\" came with control data of type %d, %zu bytes, in place of %u descriptors", text, c ? c->cmsg_type : 0, c ? c->cmsg_len : 0, n);
	CHECK(!n || (c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(n * sizeof(int))));
	if (n)
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
}

static int file(int number)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "file-%d", number);
	CHECK((fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
	CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, number + 1, SEEK_SET) == number + 1);
	return fd;
}

/* Into @to: a file, a pipe with a byte in it, one end of a pair whose other end stays here, and that one has something to read. */
static void put(int to, int number, int *ret_far)
{
	int fds[4], ends[2];

	fds[0] = file(number);
	CHECK(pipe(&fds[1]) == 0 && write(fds[2], "p", 1) == 1);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[0], "far", 3) == 3);
	fds[3] = ends[1];
	send_fds(to, "four", fds, 4);
	for (int i = 0; i < 4; i++)
		CHECK(close(fds[i]) == 0);
	*ret_far = ends[0];
}

static void check_four(const int fds[4], int number, int far_end)
{
	char buf[16];

	CHECK(read(fds[0], buf, 2) == 2 && buf[0] == '1' + number && buf[1] == '2' + number);
	CHECK(fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0 && read(fds[1], buf, 2) == 1 && buf[0] == 'p');
	CHECK(read(fds[1], buf, 2) == -1 && errno == EAGAIN && write(fds[2], "q", 1) == 1 && close(fds[2]) == 0);
	CHECK(read(fds[1], buf, 2) == 1 && read(fds[1], buf, 2) == 0);
	CHECK(read(fds[3], buf, 16) == 3 && memcmp(buf, "far", 3) == 0 && write(fds[3], "near", 4) == 4);
	CHECK(close(fds[3]) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
	CHECK(read(far_end, buf, 16) == 4 && read(far_end, buf, 16) == 0 && close(far_end) == 0);
}

/* A socket whose queue holds a file, in the queue of another. */
static void put_nested(int to)
{
	int inner[2], f = file(7);

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, inner) == 0);
	send_fds(inner[0], "inner", &f, 1);
	send_fds(to, "outer", &inner[1], 1);
	CHECK(close(inner[0]) == 0 && close(inner[1]) == 0 && close(f) == 0);
}

static void check_nested(int from)
{
	int inner, f;
	char c;

	receive_fds(from, "outer", 64, &inner, 1);
	receive_fds(inner, "inner", 64, &f, 1);
	CHECK(read(f, &c, 1) == 1 && c == '8' && close(f) == 0 && close(inner) == 0);
}

static void put_all(int fars[3])
{
	for (int i = 0; i < 3; i++) {
		CHECK(send(types[i][0], "before", 6, MSG_NOSIGNAL) == 6);
		put(types[i][0], i, &fars[i]);
		CHECK(send(types[i][0], "behind", 6, MSG_NOSIGNAL) == 6);
		put_nested(types[i][0]);
	}
}

static void get_all(const int fars[3])
{
	int fds[4];

	for (int i = 0; i < 3; i++) {
		receive_fds(types[i][1], "before", 6, NULL, 0);
		receive_fds(types[i][1], "four", 64, fds, 4);
		check_four(fds, i, fars[i]);
		receive_fds(types[i][1], "behind", 6, NULL, 0);
		check_nested(types[i][1]);
	}
}

static void put_many(void)
{
	static const char zeros[MANY];
	int f = file(2), size = MANY;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, many) == 0 && setsockopt(many[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	CHECK(send(many[0], zeros, MANY, MSG_DONTWAIT) == MANY);
	send_fds(many[0], "far behind, across", &f, 1);
	CHECK(close(f) == 0);
}

static void check_many(void)
{
	static char buf[MANY];
	char c;
	int f;

	CHECK(recv(many[1], buf, MANY, MSG_WAITALL) == MANY && buf[0] == 0 && buf[MANY - 1] == 0);
	receive_fds(many[1], "far behind, across", 64, &f, 1);
	CHECK(read(f, &c, 1) == 1 && c == '3' && close(f) == 0);
	CHECK(recv(many[1], &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(close(many[0]) == 0 && close(many[1]) == 0);
}

static void put_gone(void)
{
	int ends[2], f = file(3);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	send_fds(ends[0], "gone", &f, 1);
	CHECK(close(ends[0]) == 0 && close(f) == 0);
	gone = ends[1];
}

static void check_gone(void)
{
	char c;
	int f;

	receive_fds(gone, "gone", 64, &f, 1);
	CHECK(read(f, &c, 1) == 1 && c == '4' && close(f) == 0);
	CHECK(read(gone, &c, 1) == 0);
}

int main(void)
{
	static const int kinds[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	int fars[3], status;
	char c;

	for (int i = 0; i < 3; i++)
		CHECK(socketpair(AF_UNIX, kinds[i], 0, types[i]) == 0);
	CHECK(pipe(child_pipe) == 0 && (child = fork()) >= 0);
	if (child == 0) { /* holds all of them, does nothing */
		CHECK(close(child_pipe[1]) == 0 && read(child_pipe[0], &c, 1) == 0);
		_exit(0);
	}
	CHECK(close(child_pipe[0]) == 0);
	put_gone();
	put_many();
	put_all(fars);
	feature_ready();
	do {
		feature_work();
		get_all(fars);
		put_all(fars);
		feature_work();
	} while (feature_step());
	get_all(fars);
	check_gone();
	check_many();
	CHECK(open("/dev/null", O_RDONLY) < 64); /* nothing is left behind */
	CHECK(close(child_pipe[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
