/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections whose sender is blocked, and the guard that keeps their ends apart from who goes on. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "fd_socket_util.h"
#include "plugins/socket/socket.h"

/* The sender is blocked: more is under way than the receiver's window takes. */
static void body_stuck(void)
{
	size_t n;

	connected(end);
	n = socket_fill(end[0], 1u << 30, 1 << 16);
	socket_fill(end[1], 1234, 100);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	CHECK(fcntl(end[1], F_SETFL, 0) == 0);
	socket_drain(end[1], n);
	socket_check_empty(end[1]);
	socket_drain(end[0], 1234);
	socket_fill(end[0], 1000, 1000);
	socket_drain(end[1], 1000);
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

	connected(end);
	CHECK(setsockopt(end[1], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 7 }, sizeof(struct linger)) == 0);
	n = socket_fill(end[0], 1u << 30, 1 << 16);
	m = socket_fill(end[1], 1u << 30, 1 << 16);
	pid = fake_member(child_stuck);
	for (int i = 0; i < 2; i++)
		before[i] = settings_of(end[i]);
	count = fake_fd_count();
	fake_checkpoint_resume();
	CHECK(fake_fd_count() == count);
	for (int i = 0; i < 2; i++) {
		after = settings_of(end[i]);
		CHECK(after.send >= before[i].send && after.lock == before[i].lock); /* the kernel may tune it further */
		CHECK(!memcmp(&after.linger, &before[i].linger, sizeof(after.linger)));
	}
	fake_checkpoint_restart();
	socket_drain(end[1], n);
	socket_drain(end[0], m);
	socket_check_empty(end[0]);
	socket_check_empty(end[1]);
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

	connected(end);
	count = fake_fd_count();
	CHECK(socket_guard_make(end[0], &g) == 0);
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

	connected(end);
	setsockopt(end[0], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, 4);
	setsockopt(end[1], SOL_SOCKET, SO_RCVBUF, &(int){ 20000 }, 4);
	setsockopt(end[0], SOL_SOCKET, SO_SNDBUF, &(int){ 20000 }, 4);
	n = socket_fill(end[0], 1u << 30, 7);
	CHECK(fake_checkpoint() == 0);
	fake_resume();
	fake_checkpoint_restart();
	socket_drain(end[1], n);
	socket_check_empty(end[1]);
}

TEST(unix_full, 1, body_stuck, unix_pair)
TEST(tcp_stuck, 1, body_stuck, tcp4_pair)
TEST(tcp_stuck_shared, 2, body_stuck_shared, tcp4_pair)
TEST(guard, 1, body_guard, tcp4_pair)
TEST(tcp_stuck_small, 1, body_stuck_small, tcp4_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unix_full), cmocka_unit_test(test_tcp_stuck),
		cmocka_unit_test(test_tcp_stuck_shared), cmocka_unit_test(test_guard),
		cmocka_unit_test(test_tcp_stuck_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
