/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: unix and TCP with content both ways, ends of file, several processes at one end, options, refusals. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fd_socket_util.h"

struct names {
	struct sockaddr_storage local, remote;
};

static struct names names_of(int fd)
{
	struct names n;
	socklen_t a = sizeof(n.local), b = sizeof(n.remote);

	memset(&n, 0, sizeof(n));
	CHECK(getsockname(fd, (void *)&n.local, &a) == 0 && getpeername(fd, (void *)&n.remote, &b) == 0);
	return n;
}

static void body_both_ways(void)
{
	struct names a, b, c;

	connected(end);
	a = names_of(end[0]);
	b = names_of(end[1]);
	CHECK(fcntl(end[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(end[1], F_SETFD, FD_CLOEXEC) == 0 && dup2(end[0], 30) == 30);
	for (int i = 0; i < 3; i++) {
		socket_fill(end[0], 5000, 100);
		socket_fill(end[1], 20000, 1000);
		fake_checkpoint_resume();
		fake_checkpoint_restart();
		socket_drain(end[1], 5000);
		socket_drain(30, 20000);
		socket_check_empty(end[0]);
		socket_check_empty(end[1]);
	}
	CHECK(fcntl(end[0], F_GETFL) & O_NONBLOCK && !(fcntl(end[1], F_GETFL) & O_NONBLOCK));
	CHECK(fcntl(end[1], F_GETFD) == FD_CLOEXEC && fcntl(30, F_GETFD) == 0);
	c = names_of(end[0]);
	CHECK(!memcmp(&a, &c, sizeof(a)));
	c = names_of(end[1]);
	CHECK(!memcmp(&b, &c, sizeof(b)));
	close(end[0]);
	close(30);
	CHECK(recv(end[1], &c, 1, 0) == 0); /* no stray end */
}

static void body_half_closed(void)
{
	char c;

	signal(SIGPIPE, SIG_IGN);
	connected(end);
	socket_fill(end[0], 3000, 3000);
	socket_fill(end[1], 2000, 2000);
	CHECK(shutdown(end[0], SHUT_WR) == 0);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	socket_drain(end[1], 3000);
	CHECK(recv(end[1], &c, 1, 0) == 0);
	CHECK(send(end[0], "x", 1, 0) == -1 && errno == EPIPE);
	socket_drain(end[0], 2000);
	CHECK(send(end[1], "y", 1, 0) == 1 && recv(end[0], &c, 1, 0) == 1 && c == 'y');
	fake_checkpoint_restart();
	CHECK(recv(end[1], &c, 1, 0) == 0);
	CHECK(send(end[1], "z", 1, 0) == 1 && recv(end[0], &c, 1, 0) == 1 && c == 'z');
}

static void lets_nothing_in(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { 1, &drop };

	CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
}

/* What the kernel sends once more comes now. */
static void let_end_in(unsigned int round)
{
	struct pollfd p = { end[1], POLLRDHUP, 0 };

	if (round != 1)
		return;
	CHECK(setsockopt(end[1], SOL_SOCKET, SO_DETACH_FILTER, &(int){ 0 }, sizeof(int)) == 0);
	CHECK(poll(&p, 1, 10000) == 1 && p.revents & POLLRDHUP);
}

/* The end is still on its way when the drain begins. */
static void body_end_comes_late(void)
{
	char c;

	connected(end);
	socket_fill(end[0], 3000, 3000);
	lets_nothing_in(end[1]);
	CHECK(shutdown(end[0], SHUT_WR) == 0);
	fake_before_round = let_end_in;
	CHECK(fake_checkpoint() == 0);
	fake_before_round = NULL;
	fake_kill();
	CHECK(fake_restart() == 0);
	CHECK(fcntl(end[1], F_SETFL, O_NONBLOCK) == 0);
	socket_drain(end[1], 3000);
	CHECK(recv(end[1], &c, 1, 0) == 0);
	socket_fill(end[1], 2000, 2000);
	socket_drain(end[0], 2000);
}

static int go[2];

static void let_go(unsigned int round)
{
	if (round == 0)
		CHECK(write(go[1], "g", 1) == 1);
}

/* What resets it is still on its way when the drain looks at it: its other end is not there any more. */
static void body_reset_comes_late(void)
{
	int pid;
	char c;

	signal(SIGPIPE, SIG_IGN);
	connected(end);
	CHECK(dup2(end[0], FAKE_RESERVED + 5) >= 0 && pipe(go) == 0);
	socket_fill(end[0], 100, 100);
	lets_nothing_in(end[0]);
	close(end[1]);
	CHECK(setsockopt(end[0], SOL_SOCKET, SO_DETACH_FILTER, &(int){ 0 }, sizeof(int)) == 0 && (pid = fork()) >= 0);
	if (!pid) {
		CHECK(read(go[0], &c, 1) == 1);
		send(FAKE_RESERVED + 5, "x", 1, 0); /* is answered once more */
		_exit(0);
	}
	fake_before_round = let_go;
	CHECK(fake_checkpoint() == 0);
	fake_before_round = NULL;
	fake_reap(pid);
	close(FAKE_RESERVED + 5);
	fake_kill();
	CHECK(fake_restart() == 0);
	CHECK(recv(end[0], &c, 1, 0) == -1 && errno == ECONNRESET);
	CHECK(recv(end[0], &c, 1, 0) == 0);
}

static void body_orphan(void)
{
	char c;

	signal(SIGPIPE, SIG_IGN);
	connected(end);
	socket_fill(end[0], 4000, 500);
	close(end[0]);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	socket_drain(end[1], 4000);
	CHECK(recv(end[1], &c, 1, 0) == 0);
	send(end[1], "x", 1, 0); /* TCP learns by this that nobody is there */
	CHECK(send(end[1], "x", 1, 0) == -1 && errno == EPIPE);
	fake_checkpoint_restart();
	CHECK(send(end[1], "x", 1, 0) == -1 && (errno == EPIPE || errno == ECONNRESET));
}

static void child_peer(void)
{
	char c;

	close(end[0]);
	socket_fill(end[1], 7000, 7000);
	fake_barrier();
	fake_checkpoint_restart();
	socket_drain(end[1], 9000);
	CHECK(recv(end[1], &c, 1, 0) == 0);
}

static void body_fork(void)
{
	int pid;

	connected(end);
	pid = fake_member(child_peer);
	close(end[1]);
	socket_fill(end[0], 9000, 9000);
	fake_barrier();
	fake_checkpoint_restart();
	socket_drain(end[0], 7000);
	close(end[0]);
	fake_reap(pid);
}

/* Both ends in children, one of them shared by both and the parent. */
static void child_shares(void)
{
	char c;

	close(end[1]);
	fake_checkpoint_restart();
	socket_drain(end[0], 100);
	CHECK(send(end[0], "s", 1, 0) == 1);
	fake_barrier();
	CHECK(recv(end[0], &c, 1, 0) == 0);
}

static void body_shared(void)
{
	int pid;
	char c;

	connected(end);
	socket_fill(end[1], 100, 100);
	pid = fake_member(child_shares);
	fake_checkpoint_restart();
	CHECK(recv(end[1], &c, 1, 0) == 1 && c == 's');
	CHECK(send(end[0], "t", 1, 0) == 1 && recv(end[1], &c, 1, 0) == 1 && c == 't');
	close(end[0]);
	close(end[1]);
	fake_barrier();
	fake_reap(pid);
}

static void body_options(void)
{
	struct timeval t = { 3, 200000 }; /* whole ticks at any HZ */
	struct linger l = { 1, 5 };
	int v;
	socklen_t n = sizeof(v);

	connected(end);
	CHECK(setsockopt(end[0], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, 4) == 0);
	CHECK(setsockopt(end[0], SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, 4) == 0);
	CHECK(setsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
	CHECK(setsockopt(end[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0);
	CHECK(setsockopt(end[0], SOL_SOCKET, SO_RCVBUF, &(int){ 30000 }, 4) == 0);
	fake_checkpoint_restart();
	CHECK(getsockopt(end[0], IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 && v == 1);
	CHECK(getsockopt(end[1], IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 && v == 0);
	CHECK(getsockopt(end[0], SOL_SOCKET, SO_KEEPALIVE, &v, &n) == 0 && v == 1);
	CHECK(getsockopt(end[0], SOL_SOCKET, SO_RCVBUF, &v, &n) == 0 && v == 60000);
	n = sizeof(t);
	CHECK(getsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &t, &n) == 0 && t.tv_sec == 3 && t.tv_usec == 200000);
	n = sizeof(l);
	CHECK(getsockopt(end[0], SOL_SOCKET, SO_LINGER, &l, &n) == 0 && l.l_onoff == 1 && l.l_linger == 5);
}

static void body_outside(void)
{
	connected(end);
	CHECK(dup2(end[1], FAKE_RESERVED + 5) >= 0 && close(end[1]) == 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "the job"));
	if (connected == tcp4_pair)
		CHECK(strstr(fake_text, "127.0.0.1:"));
	fake_resume();
	CHECK(send(end[0], "x", 1, 0) == 1);
}

static void body_passed_fd(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int count;

	connected(end);
	socket_pass(end[0], end[0]);
	count = fake_fd_count();
	fake_checkpoint_resume();
	CHECK(fake_fd_count() == count);
	fake_checkpoint_restart();
	CHECK(recvmsg(end[1], &m, 0) == 1 && c->cmsg_type == SCM_RIGHTS && fake_fd_count() == count + 1);
	memcpy(&count, CMSG_DATA(c), sizeof(count));
	CHECK(send(count, "x", 1, 0) == 1 && recv(end[1], &byte, 1, 0) == 1 && byte == 'x');
}

static void body_udp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, now;
	socklen_t len = sizeof(a);

	CHECK(socket(AF_INET, SOCK_DGRAM, 0) == 3 && bind(3, (void *)&a, len) == 0 && getsockname(3, (void *)&a, &len) == 0);
	CHECK(connect(3, (void *)&a, len) == 0);
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	CHECK(getsockname(3, (void *)&now, &len) == 0 && now.sin_port == a.sin_port);
	CHECK(getpeername(3, (void *)&now, &len) == 0 && now.sin_port == a.sin_port);
	CHECK(send(3, "u", 1, 0) == 1 && recv(3, &now, 4, 0) == 1);
}

TEST(unix_both_ways, 1, body_both_ways, unix_pair)
TEST(named_both_ways, 1, body_both_ways, unix_named)
TEST(tcp4_both_ways, 1, body_both_ways, tcp4_pair)
TEST(tcp6_both_ways, 1, body_both_ways, tcp6_pair)
TEST(mixed_both_ways, 1, body_both_ways, tcp_mixed)
TEST(unix_half_closed, 1, body_half_closed, unix_pair)
TEST(tcp_half_closed, 1, body_half_closed, tcp4_pair)
TEST(tcp_end_comes_late, 1, body_end_comes_late, tcp4_pair)
TEST(tcp_reset_comes_late, 1, body_reset_comes_late, tcp4_pair)
TEST(unix_orphan, 1, body_orphan, unix_pair)
TEST(tcp_orphan, 1, body_orphan, tcp4_pair)
TEST(unix_fork, 2, body_fork, unix_pair)
TEST(tcp_fork, 2, body_fork, tcp4_pair)
TEST(unix_shared, 2, body_shared, unix_pair)
TEST(tcp_shared, 2, body_shared, tcp6_pair)
TEST(tcp_options, 1, body_options, tcp4_pair)
TEST(unix_outside, 1, body_outside, unix_pair)
TEST(tcp_outside, 1, body_outside, tcp4_pair)
TEST(passed_fd, 1, body_passed_fd, unix_pair)
TEST(udp, 1, body_udp, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unix_both_ways), cmocka_unit_test(test_named_both_ways),
		cmocka_unit_test(test_tcp4_both_ways), cmocka_unit_test(test_tcp6_both_ways),
		cmocka_unit_test(test_mixed_both_ways), cmocka_unit_test(test_unix_half_closed),
		cmocka_unit_test(test_tcp_half_closed), cmocka_unit_test(test_tcp_end_comes_late),
		cmocka_unit_test(test_tcp_reset_comes_late), cmocka_unit_test(test_unix_orphan),
		cmocka_unit_test(test_tcp_orphan), cmocka_unit_test(test_unix_fork),
		cmocka_unit_test(test_tcp_fork), cmocka_unit_test(test_unix_shared),
		cmocka_unit_test(test_tcp_shared), cmocka_unit_test(test_tcp_options),
		cmocka_unit_test(test_unix_outside), cmocka_unit_test(test_tcp_outside),
		cmocka_unit_test(test_passed_fd), cmocka_unit_test(test_udp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
