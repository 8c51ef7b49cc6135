/* SPDX-License-Identifier: BSD-2-Clause */
/* Pseudo-terminals: content both ways, cooked and raw, settings, hang-up, sharing, and terminals that lead outside. */
#include <errno.h>
#include <fcntl.h>
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
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_table.h"
#include "tests/lib/fake_host.h"

extern const struct fermata_plugin plugin_file, plugin_pipe, plugin_pty;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, &plugin_pty, NULL };

static int master, slave;
static unsigned int number;

static void open_master(int flags)
{
	master = open("/dev/ptmx", O_RDWR | O_NOCTTY | flags);
	CHECK(master >= 0 && unlockpt(master) == 0 && ioctl(master, TIOCGPTN, &number) == 0);
}

static int open_slave(int flags)
{
	return ioctl(master, TIOCGPTPEER, flags | O_NOCTTY);
}

static void open_both(int flags)
{
	signal(SIGHUP, SIG_IGN);
	open_master(flags);
	slave = open_slave(O_RDWR);
	CHECK(slave >= 0);
}

static void set_mode(tcflag_t off, tcflag_t on)
{
	struct termios t;

	CHECK(tcgetattr(slave, &t) == 0);
	t.c_lflag = (t.c_lflag & ~off) | on;
	CHECK(tcsetattr(slave, TCSANOW, &t) == 0);
}

static void set_raw(void)
{
	struct termios t;

	CHECK(tcgetattr(slave, &t) == 0);
	cfmakeraw(&t);
	CHECK(tcsetattr(slave, TCSANOW, &t) == 0);
}

static void put(int fd, const char *text)
{
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* One read gives exactly this. */
static void get(int fd, const char *text)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char buf[8192];
	ssize_t n;

	CHECK(poll(&p, 1, 5000) == 1);
	n = read(fd, buf, sizeof(buf));
	if (n != (ssize_t)strlen(text) || memcmp(buf, text, (size_t)n)) {
		dprintf(2, "%zd bytes, not \"%s\"\n", n, text);
		CHECK(!"the bytes are the same");
	}
}

/* As get, where what was written with several calls may come with several reads. */
static void get_all(int fd, const char *text)
{
	char buf[8192];
	size_t have = 0;

	while (have < strlen(text)) {
		ssize_t n;

		CHECK(poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 5000) == 1);
		n = read(fd, buf + have, sizeof(buf) - have);
		CHECK(n > 0);
		have += (size_t)n;
	}
	CHECK(have == strlen(text) && !memcmp(buf, text, have));
}

static int nothing(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 0;
}

static void (*const both_ways[])(void) = { fake_checkpoint_resume, fake_checkpoint_restart };

static void body_raw(void)
{
	for (int i = 0; i < 2; i++) {
		struct winsize w = { 33, 77, 1, 2 }, now;
		struct termios before, after;

		memset(&before, 0, sizeof(before)); /* it has bytes that nobody sets */
		memset(&after, 0, sizeof(after));
		open_both(O_CLOEXEC | O_NONBLOCK);
		set_raw();
		CHECK(ioctl(master, TIOCSWINSZ, &w) == 0 && tcgetattr(slave, &before) == 0);
		put(master, "in\rput\3\4\n");
		put(slave, "out\nput");
		CHECK(write(master, "\0x", 2) == 2);
		both_ways[i]();
		CHECK(tcgetattr(slave, &after) == 0 && memcmp(&before, &after, sizeof(before)) == 0);
		CHECK(ioctl(slave, TIOCGWINSZ, &now) == 0 && memcmp(&w, &now, sizeof(w)) == 0);
		CHECK(fcntl(master, F_GETFL) & O_NONBLOCK && fcntl(master, F_GETFD) == FD_CLOEXEC);
		CHECK(!(fcntl(slave, F_GETFL) & O_NONBLOCK) && fcntl(slave, F_GETFD) == 0);
		{
			char buf[64];

			CHECK(!nothing(slave) && read(slave, buf, sizeof(buf)) == 11 && !memcmp(buf, "in\rput\3\4\n\0x", 11));
		}
		get(master, "out\nput");
		CHECK(nothing(slave) && nothing(master));
		close(master);
		close(slave);
	}
}

static void body_cooked(void)
{
	int n;

	for (int i = 0; i < 2; i++) {
		open_both(0);
		put(master, "one\rtwo\n\4ei\4q\026\nr\nha\177 lf");
		get(slave, "one\n");
		put(slave, "said\n");
		both_ways[i]();
		get(slave, "two\n");
		CHECK(!nothing(slave) && read(slave, &(char){ 0 }, 1) == 0); /* end of file */
		get(slave, "ei");
		get(slave, "q\nr\n");
		CHECK(nothing(slave));
		put(master, "\177\177X\n"); /* still to be erased */
		get(slave, "h X\n");
		put(slave, "more\n");
		while (ioctl(master, FIONREAD, &n) == 0 && n < 49)
			;
		get(master, "one\r\ntwo\r\neiq^\b^Jr\r\nha\b \b lfsaid\r\n\b \b\b \bX\r\nmore\r\n");
		CHECK(nothing(slave) && nothing(master));
		close(master);
		close(slave);
	}
}

/* As much as the kernel takes. */
static void body_full(void)
{
	for (int i = 0; i < 2; i++) {
		size_t out = 0, in = 0;

		open_both(O_NONBLOCK);
		set_raw();
		CHECK(fcntl(slave, F_SETFL, O_NONBLOCK) == 0);
		while (write(slave, &(char){ (char)(out * 7) }, 1) == 1)
			out++;
		while (write(master, &(char){ (char)(in * 5) }, 1) == 1)
			in++;
		CHECK(out > 4096 && in > 4096);
		both_ways[i]();
		for (size_t n = 0; n < out; n++) {
			char c;

			CHECK(!nothing(master) && read(master, &c, 1) == 1 && c == (char)(n * 7));
		}
		for (size_t n = 0; n < in; n++) {
			char c;

			CHECK(!nothing(slave) && read(slave, &c, 1) == 1 && c == (char)(n * 5));
		}
		CHECK(nothing(slave) && nothing(master));
		close(master);
		close(slave);
	}
}

static void body_settings(void)
{
	int value = 1;

	for (int i = 0; i < 2; i++) {
		open_both(0);
		set_mode(ECHO, 0);
		CHECK(ioctl(master, TIOCPKT, &value) == 0 && ioctl(slave, TIOCEXCL) == 0);
		put(master, "line\npart");
		put(slave, "x");
		put(master, "\023"); /* stops the output */
		while (poll(&(struct pollfd){ slave, POLLOUT, 0 }, 1, 0))
			;
		CHECK(fake_checkpoint() == -EAGAIN && strstr(fake_text, "packet")); /* the master has not heard of that */
		fake_resume();
		get(master, "\004"); /* TIOCPKT_STOP */
		if (i)
			CHECK(fchmod(slave, 0600) == 0);
		both_ways[i]();
		CHECK(ioctl(master, TIOCGPKT, &value) == 0 && value == 1);
		CHECK(ioctl(slave, TIOCGEXCL, &value) == 0 && value == 1);
		CHECK(poll(&(struct pollfd){ slave, POLLOUT, 0 }, 1, 0) == 0);
		CHECK(read(master, (char[2]){ 0 }, 2) == 2);
		put(master, "\021");
		CHECK(poll(&(struct pollfd){ slave, POLLOUT, 0 }, 1, 5000) == 1);
		get(slave, "line\n");
		put(master, "\n");
		get(slave, "part\n");
		CHECK(tcflow(slave, TCOOFF) == 0);
		get(master, "\004");
		both_ways[i]();
		CHECK(poll(&(struct pollfd){ slave, POLLOUT, 0 }, 1, 0) == 0 && tcflow(slave, TCOON) == 0);
		CHECK(poll(&(struct pollfd){ slave, POLLOUT, 0 }, 1, 0) == 1);
		close(master);
		close(slave);
	}
}

static void body_hangup(void)
{
	char path[32], now[64] = "";
	int locked, dead;

	for (int i = 0; i < 2; i++) {
		open_both(0); /* the slave is closed */
		put(slave, "bye");
		close(slave);
		locked = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK); /* not opened yet */
		slave = open_slave(O_RDONLY);
		both_ways[i]();
		close(slave);
		get(master, "bye");
		CHECK(read(master, now, 1) == -1 && errno == EIO);
		both_ways[i]();
		CHECK(read(master, now, 1) == -1 && errno == EIO);
		CHECK(read(locked, now, 1) == -1 && errno == EAGAIN); /* no hang-up */
		CHECK(ioctl(locked, TIOCGPTPEER, O_RDWR | O_NOCTTY) == -1 && errno == EIO && unlockpt(locked) == 0);
		dead = ioctl(locked, TIOCGPTPEER, O_RDWR | O_NOCTTY);
		CHECK(dead >= 0 && close(locked) == 0);
		both_ways[i]();
		CHECK(read(dead, now, 1) == 0 && write(dead, "x", 1) == -1 && errno == EIO);
		close(dead);
		close(master);
	}
	open_both(0);
	CHECK(ioctl(master, TIOCGPTN, &number) == 0);
	fake_checkpoint_restart();
	snprintf(path, sizeof(path), "/dev/pts/%u", number);
	CHECK(ptsname_r(master, now, sizeof(now)) == 0 && ttyname(slave) && strcmp(ttyname(slave), now) == 0);
	CHECK(strcmp(now, path) == 0); /* nobody has taken it, unless somebody has */
}

static void child_slave(void)
{
	close(master);
	fake_checkpoint_restart();
	get(slave, "for the child\n");
	put(slave, "from the child\n");
	fake_barrier();
	get(slave, "again\n");
	fake_checkpoint_restart();
	put(slave, "end\n");
}

static void body_fork(void)
{
	int pid;

	open_both(0);
	set_mode(ECHO, 0);
	pid = fake_member(child_slave);
	put(master, "for the child\n");
	put(slave, "first\n");
	close(slave);
	fake_checkpoint_restart();
	fake_barrier();
	put(master, "again\n");
	fake_checkpoint_restart();
	fake_reap(pid);
	get_all(master, "first\r\nfrom the child\r\nend\r\n");
	CHECK(read(master, &(char){ 0 }, 1) == -1 && errno == EIO); /* no slave is left */
}

/* The slave is not in the job. */
static void body_stranger(void)
{
	open_both(0);
	CHECK(dup2(slave, FAKE_RESERVED + 10) >= 0 && close(slave) == 0);
	put(FAKE_RESERVED + 10, "x");
	CHECK(!nothing(master) || poll(&(struct pollfd){ master, POLLIN, 0 }, 1, 5000) == 1);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "outside the job"));
	fake_resume();
	get(master, "x");
}

/* The master is not in the job. */
static void body_outside(void)
{
	open_both(0);
	CHECK(dup2(master, FAKE_RESERVED + 10) >= 0 && close(master) == 0);
	CHECK(dup2(slave, 0) == 0 && dup2(slave, 1) == 1);
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	put(slave, "three");
	put(1, "one");
	get_all(FAKE_RESERVED + 10, "threeone");
}

static void test_raw(void **state) { fake_run(1, body_raw); }
static void test_cooked(void **state) { fake_run(1, body_cooked); }
static void test_full(void **state) { fake_run(1, body_full); }
static void test_settings(void **state) { fake_run(1, body_settings); }
static void test_hangup(void **state) { fake_run(1, body_hangup); }
static void test_fork(void **state) { fake_run(2, body_fork); }
static void test_stranger(void **state) { fake_run(1, body_stranger); }
static void test_outside(void **state) { fake_run(1, body_outside); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_raw),    cmocka_unit_test(test_cooked), cmocka_unit_test(test_full),
		cmocka_unit_test(test_settings), cmocka_unit_test(test_hangup), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_outside), cmocka_unit_test(test_stranger),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
