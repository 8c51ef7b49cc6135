/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unix datagram and packet sockets with messages in their queues at any moment: bound to a path and to an abstract name, connected to
 * one another and one way, pairs, one whose peer is gone, some that may not send any more. Each message has its own length, one of them none, and comes with its sender's name and, where it
 * was asked for, the ids of a child that sends at the same time. A child blocks in a send because the queue is full.
 */
#include "feature.h"

#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ROUNDS 4 /* messages in each queue at a time */

static struct sockaddr_un name(const char *text, socklen_t *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	memcpy(a.sun_path, text, strlen(text));
	*ret = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text) + 1); /* as the kernel counts it */
	if (*text == '@') {
		snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s-%d", text + 1, getpid());
		*ret = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1));
		a.sun_path[0] = 0;
	}
	return a;
}

struct place {
	struct sockaddr_un a;
	socklen_t len;
	int fd;
};

static struct place bound(const char *text, int type)
{
	struct place p;

	p.a = name(text, &p.len);
	CHECK((p.fd = socket(AF_UNIX, type, 0)) >= 0 && bind(p.fd, (struct sockaddr *)&p.a, p.len) == 0);
	return p;
}

static size_t length_of(uint32_t n)
{
	return 1 + n * 37 % 600;
}

static void fill(uint8_t *buf, uint32_t n)
{
	for (size_t i = 0; i < length_of(n); i++)
		buf[i] = (uint8_t)(n * 7 + i);
}

static void put(int fd, const struct place *to, uint32_t n)
{
	uint8_t buf[700];

	fill(buf, n);
	CHECK(sendto(fd, buf, length_of(n), 0, to ? (struct sockaddr *)&to->a : NULL, to ? to->len : 0) == (ssize_t)length_of(n));
}

/* The next message is number @n, from @from (NULL: from nobody with a name), by process @pid (0: not told). */
static void get(int fd, const struct place *from, pid_t pid, uint32_t n)
{
	uint8_t buf[700], want[700], control[64];
	struct sockaddr_un a;
	struct iovec v = { buf, sizeof(buf) };
	struct msghdr m = { &a, sizeof(a), &v, 1, control, sizeof(control), 0 };
	ssize_t got = recvmsg(fd, &m, 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	struct ucred who;

	fill(want, n);
	if (got != (ssize_t)length_of(n) || memcmp(buf, want, length_of(n)))
		feature_fail("message %u has %zd bytes, the first is %d (errno %d)", n, got, got > 0 ? buf[0] : -1, errno);
	if (from)
		CHECK(m.msg_namelen == from->len && memcmp(&a, &from->a, from->len) == 0);
	else
		CHECK(m.msg_namelen <= sizeof(sa_family_t));
	CHECK(!c == !pid);
	if (!pid)
		return;
	CHECK(c->cmsg_type == SCM_CREDENTIALS);
	memcpy(&who, CMSG_DATA(c), sizeof(who));
	CHECK(who.pid == pid && who.uid == getuid() && who.gid == getgid());
}

static void expect_empty(int fd)
{
	char c;

	CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static struct place server, client, dear, ids, keeper, gone_from, dealer, mute, hears;
static int anonymous, pair[2], mute_pair[2], packets[2], orphan[2], full_dgram[2], full_packets[2], accepted, dialled, cry[2];
static pid_t children[3];

/* In a child: the ends that its parent reads from. */
static void close_ends(void)
{
	close(full_dgram[0]);
	close(full_packets[0]);
}

/* Sends as fast as it can: its sends block. Ends when its peer closes. */
static pid_t blocked_sender(int end)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	close_ends();
	for (uint32_t n = 0;; n++) {
		uint8_t buf[700];

		fill(buf, n);
		if (send(end, buf, length_of(n), MSG_NOSIGNAL) != (ssize_t)length_of(n)) {
			CHECK(errno == EPIPE || errno == ECONNRESET || errno == ECONNREFUSED);
			_exit(0);
		}
	}
}

static void set(int fd, int option)
{
	int one = 1;

	CHECK(setsockopt(fd, SOL_SOCKET, option, &one, sizeof(one)) == 0);
}

/* A child that sends with its own ids, one message for each byte that it is sent. */
static pid_t crier(int ends[2], const struct place *to)
{
	pid_t pid;
	char c;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && (pid = fork()) >= 0);
	if (pid)
		return pid;
	CHECK(close(ends[0]) == 0);
	close_ends();
	for (uint32_t n = 0; read(ends[1], &c, 1) == 1; n++) {
		put(to->fd, to, n);
		CHECK(write(ends[1], &c, 1) == 1);
	}
	_exit(0);
}

static void make_packets(void)
{
	dealer = bound("packets", SOCK_SEQPACKET);
	CHECK(listen(dealer.fd, 3) == 0);
	CHECK((dialled = socket(AF_UNIX, SOCK_SEQPACKET, 0)) >= 0 && connect(dialled, (struct sockaddr *)&dealer.a, dealer.len) == 0);
	CHECK((accepted = accept(dealer.fd, NULL, NULL)) >= 0);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
}

/* They have sent, and have shut that direction since. */
static void make_mute(void)
{
	mute = bound("mute", SOCK_DGRAM);
	hears = bound("hears", SOCK_DGRAM);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, mute_pair) == 0);
	for (uint32_t n = 0; n < ROUNDS; n++) {
		put(mute.fd, &hears, n);
		put(mute_pair[0], NULL, n);
		put(mute_pair[1], NULL, n);
	}
	CHECK(shutdown(mute.fd, SHUT_WR) == 0 && shutdown(mute_pair[0], SHUT_WR) == 0 && shutdown(mute_pair[1], SHUT_WR) == 0);
}

static void check_mute(void)
{
	const int fds[] = { mute.fd, mute_pair[0], mute_pair[1] };

	for (uint32_t n = 0; n < ROUNDS; n++) {
		get(hears.fd, &mute, 0, n);
		get(mute_pair[0], NULL, 0, n);
		get(mute_pair[1], NULL, 0, n);
	}
	for (int i = 0; i < 3; i++)
		CHECK(sendto(fds[i], "x", 1, MSG_NOSIGNAL, i ? NULL : (struct sockaddr *)&hears.a, i ? 0 : hears.len) == -1 && errno == EPIPE);
	expect_empty(hears.fd);
}

static void build(void)
{
	server = bound("server", SOCK_DGRAM);
	client = bound("@client", SOCK_DGRAM);
	dear = bound("dear", SOCK_DGRAM);
	ids = bound("@ids", SOCK_DGRAM);
	CHECK((anonymous = socket(AF_UNIX, SOCK_DGRAM, 0)) >= 0);
	CHECK(connect(anonymous, (struct sockaddr *)&server.a, server.len) == 0); /* one way */
	CHECK(connect(client.fd, (struct sockaddr *)&dear.a, dear.len) == 0); /* one another */
	CHECK(connect(dear.fd, (struct sockaddr *)&client.a, client.len) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, orphan) == 0);
	make_packets();
	make_mute();
	set(ids.fd, SO_PASSCRED);
	for (uint32_t n = 0; n < ROUNDS; n++)
		put(orphan[1], NULL, n);
	CHECK(close(orphan[1]) == 0);
	gone_from = bound("gone", SOCK_DGRAM);
	keeper = bound("keeper", SOCK_DGRAM);
	put(gone_from.fd, &keeper, 1000); /* from a sender that is no more when it is received */
	CHECK(close(gone_from.fd) == 0 && unlink("gone") == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, full_dgram) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, full_packets) == 0);
	children[0] = blocked_sender(full_dgram[1]);
	children[1] = blocked_sender(full_packets[1]);
	CHECK(close(full_dgram[1]) == 0 && close(full_packets[1]) == 0);
	children[2] = crier(cry, &ids);
	CHECK(close(cry[1]) == 0);
}

static void put_all(uint32_t base)
{
	for (uint32_t n = base; n < base + ROUNDS; n++) {
		char c = 'c';

		put(anonymous, NULL, n);
		put(client.fd, NULL, n);
		put(dear.fd, NULL, n + 5);
		put(pair[0], NULL, n);
		put(pair[1], NULL, n + 9);
		put(packets[0], NULL, n);
		put(dialled, NULL, n);
		put(accepted, NULL, n + 3);
		CHECK(write(cry[0], &c, 1) == 1 && read(cry[0], &c, 1) == 1);
	}
}

static void get_all(uint32_t base, uint32_t *cried)
{
	for (uint32_t n = base; n < base + ROUNDS; n++) {
		get(server.fd, NULL, 0, n);
		get(dear.fd, &client, 0, n);
		get(client.fd, &dear, 0, n + 5);
		get(pair[1], NULL, 0, n);
		get(pair[0], NULL, 0, n + 9);
		get(packets[1], NULL, 0, n);
		get(accepted, NULL, 0, n);
		get(dialled, &dealer, 0, n + 3);
		get(ids.fd, &ids, children[2], (*cried)++);
	}
	for (int i = 0; i < 2; i++)
		expect_empty(pair[i]);
	expect_empty(server.fd);
	expect_empty(dear.fd);
	expect_empty(packets[1]);
	expect_empty(ids.fd);
}

static void end(void)
{
	int status;
	char c;

	for (uint32_t n = 0; n < ROUNDS; n++)
		get(orphan[0], NULL, 0, n);
	expect_empty(orphan[0]);
	get(keeper.fd, &gone_from, 0, 1000);
	expect_empty(keeper.fd);
	check_mute();
	CHECK(send(orphan[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == ECONNREFUSED);
	CHECK(close(full_dgram[0]) == 0 && close(full_packets[0]) == 0 && close(cry[0]) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(close(packets[0]) == 0 && recv(packets[1], &c, 1, 0) == 0);
}

int main(void)
{
	uint32_t base = 0, full = 0, cried = 0;
	struct stat st;

	build();
	put_all(base);
	feature_ready();
	do {
		feature_work();
		get_all(base, &cried);
		CHECK(stat("server", &st) == 0 && S_ISSOCK(st.st_mode) && stat("gone", &st) == -1);
		for (int i = 0; i < 5; i++, full++) {
			get(full_dgram[0], NULL, 0, full);
			get(full_packets[0], NULL, 0, full);
		}
		base += ROUNDS;
		put_all(base);
		feature_work();
	} while (feature_step());
	get_all(base, &cried);
	end();
	return 0;
}
