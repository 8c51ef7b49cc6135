/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners: those who wait in their queues, names and ports that are bound to again, and that are taken. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "fd_socket_util.h"

/* A server with its listener and several connections on one port. */
static void body_listener(void)
{
	struct sockaddr_storage a, b;
	socklen_t len, blen = sizeof(b);
	int l = tcp_listener(AF_INET, &a, &len), one[2], two[2], three[2], fresh = socket(AF_INET, SOCK_STREAM, 0);

	tcp_connect(l, &a, len, one);
	tcp_connect(l, &a, len, two);
	socket_fill(one[0], 100, 100);
	socket_fill(two[1], 200, 100);
	for (int i = 0; i < 3; i++)
		fake_checkpoint_restart();
	socket_drain(one[1], 100);
	socket_drain(two[0], 200);
	CHECK(getsockname(l, (void *)&b, &blen) == 0 && !memcmp(&a, &b, len));
	CHECK(getsockname(two[1], (void *)&b, &blen) == 0 && !memcmp(&a, &b, len));
	tcp_connect(l, &a, len, three);
	socket_fill(three[0], 10, 10);
	socket_drain(three[1], 10);
	CHECK(connect(fresh, (void *)&a, len) == 0); /* in the queue of the listener */
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	fake_checkpoint_restart();
	CHECK(fcntl(l, F_SETFL, O_NONBLOCK) == 0);
	close(three[1]);
	CHECK((three[1] = accept(l, NULL, NULL)) >= 0 && accept(l, NULL, NULL) == -1);
	socket_fill(fresh, 20, 20);
	socket_drain(three[1], 20);
	close(fresh);
	fresh = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fresh, (void *)&a, len) == 0 && send(fresh, "x", 1, 0) == 1);
	CHECK(fake_checkpoint() == -EALREADY && strstr(fake_text, "accepted"));
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
	socket_fill(60, 10, 10);
	socket_drain(one[1], 10);
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
	socket_fill(c, 10, 10);
	socket_drain(s, 10);
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
	socket_fill(c, 10, 10);
	socket_drain(s, 10);
	unlink(a.sun_path);
}

/* A pipe whose other end is on its way to a server that has not accepted yet. */
static void body_end_waits(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), p[2];

	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "fermata-fd-%d", getpid());
	CHECK(bind(l, (void *)&a, sizeof(a)) == 0 && listen(l, 3) == 0 && connect(c, (void *)&a, sizeof(a)) == 0 && pipe(p) == 0);
	socket_pass(c, p[0]);
	close(p[0]);
	close(c);
	CHECK(fake_checkpoint() == -EAGAIN && strstr(fake_text, "not accepted yet"));
	fake_resume();
	close(accept(l, NULL, NULL));
	fake_checkpoint_restart();
	CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && write(p[1], "x", 1) == -1 && errno == EPIPE);
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

/* Another machine, with this address alone. */
static void new_machine(const char *text)
{
	struct ifreq r = { .ifr_name = "lo" };
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;
	int s;

	CHECK(unshare(CLONE_NEWNET) == 0);
	s = socket(AF_INET, SOCK_DGRAM, 0);
	a->sin_family = AF_INET;
	CHECK(inet_pton(AF_INET, text, &a->sin_addr) == 1 && ioctl(s, SIOCSIFADDR, &r) == 0);
	r.ifr_flags = IFF_UP;
	CHECK(ioctl(s, SIOCSIFFLAGS, &r) == 0);
	close(s);
}

/* A connection of a machine that has gone: nothing is waited for. An attempt for each of SOCKET_TRIES naps would be as many switches. */
static void body_elsewhere(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET }, now;
	struct rusage before, after;
	socklen_t len = sizeof(a);
	int l, ends[2];

	if (unshare(CLONE_NEWUSER) < 0)
		return;
	new_machine("10.98.76.54");
	CHECK(inet_pton(AF_INET, "10.98.76.54", &a.sin_addr) == 1);
	l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(l, (void *)&a, len) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&a, &len) == 0);
	tcp_connect(l, (struct sockaddr_storage *)&a, len, ends);
	close(l);
	socket_fill(ends[0], 100, 100);
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	new_machine("127.0.0.1");
	CHECK(getrusage(RUSAGE_SELF, &before) == 0 && fake_restart() == 0 && getrusage(RUSAGE_SELF, &after) == 0);
	CHECK(after.ru_nvcsw - before.ru_nvcsw < 35);
	socket_drain(ends[1], 100);
	CHECK(getpeername(ends[0], (void *)&now, &len) == 0 && now.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
}

TEST(tcp_listener, 1, body_listener, NULL)
TEST(time_wait, 1, body_time_wait, NULL)
TEST(unix_listener, 1, body_unix_listener, NULL)
TEST(end_waits, 1, body_end_waits, NULL)
TEST(port_taken, 1, body_port_taken, NULL)
TEST(elsewhere, 1, body_elsewhere, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tcp_listener), cmocka_unit_test(test_time_wait),
		cmocka_unit_test(test_unix_listener), cmocka_unit_test(test_end_waits), cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
