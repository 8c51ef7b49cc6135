/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets: unix and TCP connections with content both ways, ends of file, listeners, options, the stuck sender, refusals. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_table.h"
#include "plugins/socket/socket.h"
#include "tests/lib/fake_host.h"

extern const struct fermata_plugin plugin_file, plugin_pipe, plugin_socket;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, &plugin_socket, NULL };

static int p[2];

/* Where the next connection is made. */
static void (*connected)(int ends[2]);

static void unix_pair(int ends[2])
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
}

static void unix_named(int ends[2])
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int l = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/fermata-fd-%d", getpid());
	CHECK(bind(l, (void *)&a, sizeof(a)) == 0 && listen(l, 1) == 0);
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)&a, sizeof(a)) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(l);
	unlink(a.sun_path);
}

static int tcp_listener(int family, struct sockaddr_storage *a, socklen_t *len)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int l = socket(family, SOCK_STREAM, 0);

	memset(a, 0, sizeof(*a));
	*len = sizeof(*a);
	CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, 4) == 0);
	if (family == AF_INET)
		CHECK(bind(l, (void *)&a4, sizeof(a4)) == 0);
	else
		CHECK(bind(l, (void *)&a6, sizeof(a6)) == 0);
	CHECK(listen(l, 7) == 0 && getsockname(l, (void *)a, len) == 0);
	return l;
}

static void tcp_connect(int l, struct sockaddr_storage *a, socklen_t len, int ends[2])
{
	ends[0] = socket(a->ss_family, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)a, len) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
}

static void tcp_family(int family, int ends[2])
{
	struct sockaddr_storage a;
	socklen_t len;
	int l = tcp_listener(family, &a, &len);

	tcp_connect(l, &a, len, ends);
	close(l);
}

static void tcp4_pair(int ends[2]) { tcp_family(AF_INET, ends); }
static void tcp6_pair(int ends[2]) { tcp_family(AF_INET6, ends); }

/* A server that listens on [::] and a client that comes by IPv4: mapped addresses on one side. */
static void tcp_mixed(int ends[2])
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(any);
	int l = socket(AF_INET6, SOCK_STREAM, 0);

	CHECK(bind(l, (void *)&any, sizeof(any)) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&any, &len) == 0);
	a4.sin_port = any.sin6_port;
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)&a4, sizeof(a4)) == 0);
	ends[1] = accept(l, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(l);
}

static size_t fill(int fd, size_t n, size_t piece)
{
	static char buf[1 << 16];
	size_t at = 0;

	while (at < n) {
		size_t want = n - at < piece ? n - at : piece;
		ssize_t got;

		for (size_t i = 0; i < want; i++)
			buf[i] = (char)((at + i) * 13 + (at + i) / 251);
		got = send(fd, buf, want, MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN)
			break;
		CHECK(got > 0);
		at += (size_t)got;
	}
	return at;
}

static void drain(int fd, size_t n)
{
	static char buf[1 << 16];
	size_t at = 0;

	while (at < n) {
		ssize_t got = recv(fd, buf, n - at < sizeof(buf) ? n - at : sizeof(buf), 0);

		CHECK(got > 0);
		for (size_t i = 0; i < (size_t)got; i++)
			CHECK(buf[i] == (char)((at + i) * 13 + (at + i) / 251));
		at += (size_t)got;
	}
}

static void check_empty(int fd)
{
	char c;

	CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

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

	connected(p);
	a = names_of(p[0]);
	b = names_of(p[1]);
	CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(p[1], F_SETFD, FD_CLOEXEC) == 0 && dup2(p[0], 30) == 30);
	for (int i = 0; i < 3; i++) {
		fill(p[0], 5000, 100);
		fill(p[1], 20000, 1000);
		fake_checkpoint_resume();
		fake_checkpoint_restart();
		drain(p[1], 5000);
		drain(30, 20000);
		check_empty(p[0]);
		check_empty(p[1]);
	}
	CHECK(fcntl(p[0], F_GETFL) & O_NONBLOCK && !(fcntl(p[1], F_GETFL) & O_NONBLOCK));
	CHECK(fcntl(p[1], F_GETFD) == FD_CLOEXEC && fcntl(30, F_GETFD) == 0);
	c = names_of(p[0]);
	CHECK(!memcmp(&a, &c, sizeof(a)));
	c = names_of(p[1]);
	CHECK(!memcmp(&b, &c, sizeof(b)));
	close(p[0]);
	close(30);
	CHECK(recv(p[1], &c, 1, 0) == 0); /* no stray end */
}

static void body_half_closed(void)
{
	char c;

	signal(SIGPIPE, SIG_IGN);
	connected(p);
	fill(p[0], 3000, 3000);
	fill(p[1], 2000, 2000);
	CHECK(shutdown(p[0], SHUT_WR) == 0);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	drain(p[1], 3000);
	CHECK(recv(p[1], &c, 1, 0) == 0);
	CHECK(send(p[0], "x", 1, 0) == -1 && errno == EPIPE);
	drain(p[0], 2000);
	CHECK(send(p[1], "y", 1, 0) == 1 && recv(p[0], &c, 1, 0) == 1 && c == 'y');
	fake_checkpoint_restart();
	CHECK(recv(p[1], &c, 1, 0) == 0);
	CHECK(send(p[1], "z", 1, 0) == 1 && recv(p[0], &c, 1, 0) == 1 && c == 'z');
}

static void body_orphan(void)
{
	char c;

	signal(SIGPIPE, SIG_IGN);
	connected(p);
	fill(p[0], 4000, 500);
	close(p[0]);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	drain(p[1], 4000);
	CHECK(recv(p[1], &c, 1, 0) == 0);
	send(p[1], "x", 1, 0); /* TCP learns by this that nobody is there */
	CHECK(send(p[1], "x", 1, 0) == -1 && errno == EPIPE);
	fake_checkpoint_restart();
	CHECK(send(p[1], "x", 1, 0) == -1 && (errno == EPIPE || errno == ECONNRESET));
}

static void child_peer(void)
{
	char c;

	close(p[0]);
	fill(p[1], 7000, 7000);
	fake_barrier();
	fake_checkpoint_restart();
	drain(p[1], 9000);
	CHECK(recv(p[1], &c, 1, 0) == 0);
}

static void body_fork(void)
{
	int pid;

	connected(p);
	pid = fake_member(child_peer);
	close(p[1]);
	fill(p[0], 9000, 9000);
	fake_barrier();
	fake_checkpoint_restart();
	drain(p[0], 7000);
	close(p[0]);
	fake_reap(pid);
}

/* Both ends in children, one of them shared by both and the parent. */
static void child_shares(void)
{
	char c;

	close(p[1]);
	fake_checkpoint_restart();
	drain(p[0], 100);
	CHECK(send(p[0], "s", 1, 0) == 1);
	fake_barrier();
	CHECK(recv(p[0], &c, 1, 0) == 0);
}

static void body_shared(void)
{
	int pid;
	char c;

	connected(p);
	fill(p[1], 100, 100);
	pid = fake_member(child_shares);
	fake_checkpoint_restart();
	CHECK(recv(p[1], &c, 1, 0) == 1 && c == 's');
	CHECK(send(p[0], "t", 1, 0) == 1 && recv(p[1], &c, 1, 0) == 1 && c == 't');
	close(p[0]);
	close(p[1]);
	fake_barrier();
	fake_reap(pid);
}

/* The sender is blocked: more is under way than the receiver's window takes. */
static void body_stuck(void)
{
	size_t n;

	connected(p);
	n = fill(p[0], 1u << 30, 1 << 16);
	fill(p[1], 1234, 100);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	CHECK(fcntl(p[1], F_SETFL, 0) == 0);
	drain(p[1], n);
	check_empty(p[1]);
	drain(p[0], 1234);
	fill(p[0], 1000, 1000);
	drain(p[1], 1000);
}

struct settings {
	int send, receive, lock;
	struct linger linger;
};

static struct settings settings_of(int fd)
{
	struct settings s;
	socklen_t len = 4;

	memset(&s, 0, sizeof(s));
	CHECK(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &s.send, &len) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &s.receive, &len) == 0);
	getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &s.lock, &len);
	len = sizeof(s.linger);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &s.linger, &len) == 0);
	return s;
}

/* Neither of them can send; a member more shares both ends. Who goes on finds everything as it was. */
static void child_stuck(void)
{
	int count = fake_fd_count();

	fake_checkpoint_resume();
	CHECK(fake_fd_count() == count);
	fake_checkpoint_restart();
}

static void body_stuck_shared(void)
{
	struct settings before[2], after;
	size_t n, m;
	int pid, count;

	connected(p);
	CHECK(setsockopt(p[1], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 7 }, sizeof(struct linger)) == 0);
	n = fill(p[0], 1u << 30, 1 << 16);
	m = fill(p[1], 1u << 30, 1 << 16);
	pid = fake_member(child_stuck);
	for (int i = 0; i < 2; i++)
		before[i] = settings_of(p[i]);
	count = fake_fd_count();
	fake_checkpoint_resume();
	CHECK(fake_fd_count() == count);
	for (int i = 0; i < 2; i++) {
		after = settings_of(p[i]);
		CHECK(after.send >= before[i].send && after.lock == before[i].lock); /* the kernel may tune it further */
		CHECK(!memcmp(&after.linger, &before[i].linger, sizeof(after.linger)));
	}
	fake_checkpoint_restart();
	drain(p[1], n);
	drain(p[0], m);
	check_empty(p[0]);
	check_empty(p[1]);
	fake_reap(pid);
}

/* In the system call of that number, or on its way to it. */
static void await_syscall(int pid, int number)
{
	char path[64], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	while (atoi(text) != number || text[0] < '0' || text[0] > '9') {
		memset(text, 0, sizeof(text));
		fd = open(path, O_RDONLY);
		CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
		close(fd);
	}
}

/* Nobody goes on while somebody holds the guard, and nobody can get hold of it after that. */
static void body_guard(void)
{
	int *let_go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), held, pid, count;
	struct socket_guard g, old;

	connected(p);
	count = fake_fd_count();
	CHECK(socket_guard_make(p[0], &g) == 0);
	old = g;
	old.held_ino++;
	CHECK(socket_guard_hold(&old) == -ESTALE);
	held = socket_guard_hold(&g);
	CHECK(held >= 0 && let_go != MAP_FAILED && (pid = fork()) >= 0);
	if (!pid) {
		alarm(20);
		await_syscall(getppid(), SYS_poll);
		*let_go = 1;
		_exit(0);
	}
	close(held);
	socket_guards_end();
	CHECK(*let_go == 1);
	fake_reap(pid);
	CHECK(fake_fd_count() == count);
	CHECK(socket_guard_hold(&g) < 0);
}

static void body_stuck_small(void)
{
	size_t n;

	connected(p);
	setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, 4);
	setsockopt(p[1], SOL_SOCKET, SO_RCVBUF, &(int){ 20000 }, 4);
	setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &(int){ 20000 }, 4);
	n = fill(p[0], 1u << 30, 7);
	CHECK(fake_checkpoint() == 0);
	fake_resume();
	fake_checkpoint_restart();
	drain(p[1], n);
	check_empty(p[1]);
}

static void body_options(void)
{
	struct timeval t = { 3, 200000 }; /* whole ticks at any HZ */
	struct linger l = { 1, 5 };
	int v;
	socklen_t n = sizeof(v);

	connected(p);
	CHECK(setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, 4) == 0);
	CHECK(setsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, 4) == 0);
	CHECK(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
	CHECK(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0);
	CHECK(setsockopt(p[0], SOL_SOCKET, SO_RCVBUF, &(int){ 30000 }, 4) == 0);
	fake_checkpoint_restart();
	CHECK(getsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 && v == 1);
	CHECK(getsockopt(p[1], IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 && v == 0);
	CHECK(getsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, &v, &n) == 0 && v == 1);
	CHECK(getsockopt(p[0], SOL_SOCKET, SO_RCVBUF, &v, &n) == 0 && v == 60000);
	n = sizeof(t);
	CHECK(getsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, &n) == 0 && t.tv_sec == 3 && t.tv_usec == 200000);
	n = sizeof(l);
	CHECK(getsockopt(p[0], SOL_SOCKET, SO_LINGER, &l, &n) == 0 && l.l_onoff == 1 && l.l_linger == 5);
}

/* A server with its listener and several connections on one port. */
static void body_listener(void)
{
	struct sockaddr_storage a, b;
	socklen_t len, blen = sizeof(b);
	int l = tcp_listener(AF_INET, &a, &len), one[2], two[2], three[2], fresh = socket(AF_INET, SOCK_STREAM, 0);

	tcp_connect(l, &a, len, one);
	tcp_connect(l, &a, len, two);
	fill(one[0], 100, 100);
	fill(two[1], 200, 100);
	for (int i = 0; i < 3; i++)
		fake_checkpoint_restart();
	drain(one[1], 100);
	drain(two[0], 200);
	CHECK(getsockname(l, (void *)&b, &blen) == 0 && !memcmp(&a, &b, len));
	CHECK(getsockname(two[1], (void *)&b, &blen) == 0 && !memcmp(&a, &b, len));
	tcp_connect(l, &a, len, three);
	fill(three[0], 10, 10);
	drain(three[1], 10);
	CHECK(connect(fresh, (void *)&a, len) == 0); /* in the queue of the listener */
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	fake_checkpoint_restart();
	CHECK(fcntl(l, F_SETFL, O_NONBLOCK) == 0);
	close(three[1]);
	CHECK((three[1] = accept(l, NULL, NULL)) >= 0 && accept(l, NULL, NULL) == -1);
	fill(fresh, 20, 20);
	drain(three[1], 20);
	close(fresh);
	fresh = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fresh, (void *)&a, len) == 0 && send(fresh, "x", 1, 0) == 1);
	CHECK(fake_checkpoint() == -EAGAIN && strstr(fake_text, "accepted"));
	fake_resume();
	close(accept(l, NULL, NULL));
	fake_checkpoint_restart();
	close(fresh);
	fresh = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fresh, (void *)&a, len) == 0);
	close(fresh); /* in the queue, and gone */
	CHECK(fake_checkpoint() == -EAGAIN && strstr(fake_text, "0 of them from"));
	fake_resume();
}

/* Servers that do not set SO_REUSEADDR themselves, killed with connections on their port, again and again. */
static void body_time_wait(void)
{
	struct sockaddr_storage a, b;
	socklen_t len, blen;
	int l = tcp_listener(AF_INET, &a, &len), one[2], two[2];

	CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &(int){ 0 }, 4) == 0);
	tcp_connect(l, &a, len, one);
	tcp_connect(l, &a, len, two);
	dup2(one[0], 60); /* one closes the server's end first, the other the client's */
	close(one[0]);
	for (int i = 0; i < 4; i++)
		fake_checkpoint_restart();
	blen = sizeof(b);
	CHECK(getsockname(l, (void *)&b, &blen) == 0 && !memcmp(&a, &b, len));
	fill(60, 10, 10);
	drain(one[1], 10);
}

static void body_unix_listener(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), s, abstract;
	struct stat st;

	snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/fermata-fd-%d", getpid());
	CHECK(bind(l, (void *)&a, sizeof(a)) == 0 && listen(l, 3) == 0 && chmod(a.sun_path, 0640) == 0);
	CHECK(connect(c, (void *)&a, sizeof(a)) == 0);
	s = accept(l, NULL, NULL);
	a.sun_path[0] = 0;
	abstract = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(abstract, (void *)&a, sizeof(a)) == 0 && listen(abstract, 3) == 0);
	for (int i = 0; i < 2; i++)
		fake_checkpoint_restart();
	fill(c, 10, 10);
	drain(s, 10);
	close(c);
	c = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(c, (void *)&a, sizeof(a)) == 0 && accept(abstract, NULL, NULL) >= 0);
	a.sun_path[0] = '/';
	CHECK(stat(a.sun_path, &st) == 0 && (st.st_mode & 07777) == 0640);
	close(c);
	c = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(c, (void *)&a, sizeof(a)) == 0);
	fake_checkpoint_restart();
	close(s);
	s = accept(l, NULL, NULL);
	fill(c, 10, 10);
	drain(s, 10);
	unlink(a.sun_path);
}

static void body_port_taken(void)
{
	struct sockaddr_storage a;
	char port[32];
	socklen_t len;
	int l = tcp_listener(AF_INET, &a, &len), other;

	CHECK(fake_checkpoint() == 0);
	fake_kill();
	other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(other, (void *)&a, len) == 0 && listen(other, 1) == 0);
	CHECK(dup2(other, FAKE_RESERVED + 5) >= 0 && close(other) == 0);
	snprintf(port, sizeof(port), ":%d is in use", ntohs(((struct sockaddr_in *)&a)->sin_port));
	CHECK(fake_restart() == -EADDRINUSE && strstr(fake_text, port));
	(void)l;
}

static void body_outside(void)
{
	connected(p);
	CHECK(dup2(p[1], FAKE_RESERVED + 5) >= 0 && close(p[1]) == 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "the job"));
	if (connected == tcp4_pair)
		CHECK(strstr(fake_text, "127.0.0.1:"));
	fake_resume();
	CHECK(send(p[0], "x", 1, 0) == 1);
}

static void body_passed_fd(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'f';
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int count;

	connected(p);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &p[0], sizeof(int));
	CHECK(sendmsg(p[0], &m, 0) == 1);
	count = fake_fd_count();
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "descriptor in its queue"));
	fake_resume();
	CHECK(fake_fd_count() == count);
	CHECK(recvmsg(p[1], &m, 0) == 1 && c->cmsg_type == SCM_RIGHTS);
}

static void body_udp(void)
{
	CHECK(socket(AF_INET, SOCK_DGRAM, 0) == 3);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "fd 3 is a socket of family 2, type 2"));
	fake_resume();
}

#define TEST(name, members, body, make)              \
	static void test_##name(void **state)         \
	{                                             \
		connected = make;                     \
		fake_run(members, body);              \
	}

TEST(unix_both_ways, 1, body_both_ways, unix_pair)
TEST(named_both_ways, 1, body_both_ways, unix_named)
TEST(tcp4_both_ways, 1, body_both_ways, tcp4_pair)
TEST(tcp6_both_ways, 1, body_both_ways, tcp6_pair)
TEST(mixed_both_ways, 1, body_both_ways, tcp_mixed)
TEST(unix_half_closed, 1, body_half_closed, unix_pair)
TEST(tcp_half_closed, 1, body_half_closed, tcp4_pair)
TEST(unix_orphan, 1, body_orphan, unix_pair)
TEST(tcp_orphan, 1, body_orphan, tcp4_pair)
TEST(unix_fork, 2, body_fork, unix_pair)
TEST(tcp_fork, 2, body_fork, tcp4_pair)
TEST(unix_shared, 2, body_shared, unix_pair)
TEST(tcp_shared, 2, body_shared, tcp6_pair)
TEST(unix_full, 1, body_stuck, unix_pair)
TEST(tcp_stuck, 1, body_stuck, tcp4_pair)
TEST(tcp_stuck_shared, 2, body_stuck_shared, tcp4_pair)
TEST(guard, 1, body_guard, tcp4_pair)
TEST(tcp_stuck_small, 1, body_stuck_small, tcp4_pair)
TEST(tcp_options, 1, body_options, tcp4_pair)
TEST(tcp_listener, 1, body_listener, NULL)
TEST(time_wait, 1, body_time_wait, NULL)
TEST(unix_listener, 1, body_unix_listener, NULL)
TEST(port_taken, 1, body_port_taken, NULL)
TEST(unix_outside, 1, body_outside, unix_pair)
TEST(tcp_outside, 1, body_outside, tcp4_pair)
TEST(passed_fd, 1, body_passed_fd, unix_pair)
TEST(udp, 1, body_udp, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unix_both_ways),	cmocka_unit_test(test_named_both_ways),
		cmocka_unit_test(test_tcp4_both_ways),	cmocka_unit_test(test_tcp6_both_ways),
		cmocka_unit_test(test_mixed_both_ways), cmocka_unit_test(test_unix_half_closed),
		cmocka_unit_test(test_tcp_half_closed), cmocka_unit_test(test_unix_orphan),
		cmocka_unit_test(test_tcp_orphan),	cmocka_unit_test(test_unix_fork),
		cmocka_unit_test(test_tcp_fork),	cmocka_unit_test(test_unix_shared),
		cmocka_unit_test(test_tcp_shared),	cmocka_unit_test(test_unix_full),
		cmocka_unit_test(test_tcp_stuck),	cmocka_unit_test(test_tcp_stuck_small),
		cmocka_unit_test(test_tcp_stuck_shared), cmocka_unit_test(test_guard),
		cmocka_unit_test(test_tcp_options),	cmocka_unit_test(test_tcp_listener),
		cmocka_unit_test(test_unix_listener), cmocka_unit_test(test_time_wait),	cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_unix_outside),	cmocka_unit_test(test_tcp_outside),
		cmocka_unit_test(test_passed_fd),	cmocka_unit_test(test_udp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
