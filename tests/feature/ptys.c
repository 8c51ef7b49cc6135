/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A terminal window, a shell in it and the shell's foreground job, all over one pseudo-terminal, with lines under way both ways and a line that is
 * not finished; and a raw pseudo-terminal within one process, with bytes under way both ways.
 *
 *   main (master) -- shell (leads the session) -- job (the foreground group): answers each line, and each ^C
 *                                              \- without: has given up the terminal
 */
#include "feature.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#define AHEAD 5	  /* lines under way */
#define RAW 1500u /* bytes under way */

static volatile sig_atomic_t interrupts;

static void interrupted(int sig)
{
	(void)sig;
	interrupts++;
}

static void check_terminal(int fd, pid_t session, pid_t foreground)
{
	struct winsize w;

	CHECK(ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row == 31 && w.ws_col == 97);
	CHECK(tcgetsid(fd) == session && tcgetpgrp(fd) == foreground);
}

static int name_holds(int fd)
{
	struct stat by_name, by_fd;
	char name[64];

	return ttyname_r(fd, name, sizeof(name)) == 0 && stat(name, &by_name) == 0 && fstat(fd, &by_fd) == 0 && by_name.st_rdev == by_fd.st_rdev;
}

/* Somebody else may have the number since a restart: who was cut between two looks of these sees two terminals, once. */
static void check_name(int fd)
{
	CHECK(name_holds(fd) || name_holds(fd));
}

/* Its controlling terminal, which it has from the shell, in whose foreground it is. */
static void check_own(void)
{
	struct pollfd p = { .fd = 0 };
	int tty = open("/dev/tty", O_RDWR);

	CHECK((tty >= 0 && tcgetpgrp(tty) == getpgrp() && close(tty) == 0) || (poll(&p, 1, 0) == 1 && p.revents & POLLHUP));
}

/* One of the session that has given up the terminal. */
static void run_without(int slave)
{
	CHECK(ioctl(slave, TIOCNOTTY, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		CHECK(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO && (tcgetpgrp(slave) == -1 && errno == ENOTTY));
		feature_work();
	}
}

/* Ends with the terminal. */
static void run_job(void)
{
	struct sigaction action = { .sa_handler = interrupted };
	sigset_t none, interrupt;
	char line[256];
	fd_set in;
	ssize_t n;

	sigemptyset(&none);
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	CHECK(sigprocmask(SIG_BLOCK, &interrupt, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0);
	FD_ZERO(&in);
	for (;;) {
		FD_SET(0, &in);
		n = pselect(1, &in, NULL, NULL, NULL, &none);
		if (interrupts) {
			interrupts--;
			CHECK(write(1, "interrupt\n", 10) == 10);
		}
		if (n < 0 && errno == EINTR)
			continue;
		n = read(0, line, sizeof(line));
		if (n <= 0)
			_exit(0); /* hung up */
		CHECK(line[n - 1] == '\n');
		check_own();
		feature_work();
		CHECK(write(1, line, (size_t)n) == n);
	}
}

/* SIGINT would end it: it is for the foreground alone. */
static void run_shell(int slave)
{
	pid_t job, without;

	CHECK(setsid() == getpid() && ioctl(slave, TIOCSCTTY, 0) == 0);
	CHECK(dup2(slave, 0) == 0 && dup2(slave, 1) == 1 && signal(SIGTTOU, SIG_IGN) != SIG_ERR);
	without = fork();
	CHECK(without >= 0);
	if (without == 0)
		run_without(slave);
	job = fork();
	CHECK(job >= 0);
	if (job == 0) {
		CHECK(setpgid(0, 0) == 0 && tcsetpgrp(0, getpid()) == 0);
		close(slave);
		CHECK(write(1, "job\n", 4) == 4);
		run_job();
	}
	while (waitpid(job, NULL, WNOHANG) == 0) {
		int tty = open("/dev/tty", O_RDWR);

		while (tty < 0 && errno == EIO) /* its master is closed: SIGHUP is on its way */
			pause();
		CHECK(tty >= 0);
		CHECK(kill(without, 0) == 0 && waitpid(without, NULL, WNOHANG) == 0);
		if (tcgetpgrp(tty) != getpgrp())
			check_terminal(tty, getpid(), job);
		check_name(slave);
		CHECK(getsid(0) == getpid());
		close(tty);
		feature_work();
	}
	_exit(1);
}

static int open_terminal(int *ret_slave)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	char name[64];

	CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && ptsname_r(master, name, sizeof(name)) == 0);
	*ret_slave = open(name, O_RDWR | O_NOCTTY);
	CHECK(*ret_slave >= 0);
	return master;
}

static void expect(int master, const char *text)
{
	size_t length = strlen(text), got = 0;
	char bytes[64];

	while (got < length) {
		ssize_t n = read(master, bytes + got, length - got);

		CHECK(n > 0);
		got += (size_t)n;
	}
	if (memcmp(bytes, text, length))
		feature_fail("\"%.*s\" has come, not \"%s\"", (int)length, bytes, text);
}

static void say(int master, const char *text)
{
	CHECK(write(master, text, strlen(text)) == (ssize_t)strlen(text));
}

/* The end of the line before, and the beginning of the next. */
static void send_line(int master, unsigned long n)
{
	char text[64];

	snprintf(text, sizeof(text), "%lu\nline ", n);
	say(master, text);
}

static void expect_line(int master, unsigned long n)
{
	char text[64];

	snprintf(text, sizeof(text), "line %lu\r\n", n);
	expect(master, text);
}

/* Moves @n bytes on, in both directions. */
static void raw_step(int master, int slave, unsigned char *written, unsigned char *read_at, unsigned int n_write, unsigned int n_read)
{
	for (unsigned int i = 0; i < n_write; i++, ++*written)
		CHECK(write(master, written, 1) == 1 && write(slave, written, 1) == 1);
	for (unsigned int i = 0; i < n_read; i++, ++*read_at) {
		unsigned char a, b;

		CHECK(read(slave, &a, 1) == 1 && read(master, &b, 1) == 1 && a == *read_at && b == *read_at);
	}
}

static pid_t start(int *ret_master, pid_t *ret_job)
{
	int slave, master = open_terminal(&slave);
	struct winsize w = { .ws_row = 31, .ws_col = 97 };
	struct termios t;
	pid_t shell;

	CHECK(tcgetattr(slave, &t) == 0);
	t.c_lflag &= ~(tcflag_t)ECHO;
	CHECK(tcsetattr(slave, TCSANOW, &t) == 0 && ioctl(master, TIOCSWINSZ, &w) == 0);
	shell = fork();
	CHECK(shell >= 0);
	if (shell == 0) {
		close(master);
		run_shell(slave);
	}
	close(slave);
	expect(master, "job\r\n");
	*ret_job = tcgetpgrp(master);
	*ret_master = master;
	return shell;
}

int main(void)
{
	int master, raw_slave, raw_master, status;
	unsigned char raw_written = 0, raw_read = 0;
	unsigned long sent = 0, heard = 0;
	struct termios t;
	pid_t job, shell;

	signal(SIGHUP, SIG_DFL); /* it may come from nohup */
	shell = start(&master, &job);
	CHECK(job > 0 && job != shell);
	raw_master = open_terminal(&raw_slave);
	CHECK(tcgetattr(raw_slave, &t) == 0);
	cfmakeraw(&t);
	CHECK(tcsetattr(raw_slave, TCSANOW, &t) == 0);
	raw_step(raw_master, raw_slave, &raw_written, &raw_read, RAW, 0);
	say(master, "line ");
	while (sent < AHEAD)
		send_line(master, sent++);
	feature_ready();
	while (feature_step()) {
		send_line(master, sent++);
		expect_line(master, heard++);
		check_terminal(master, shell, job);
		raw_step(raw_master, raw_slave, &raw_written, &raw_read, 20, 20);
		check_name(raw_slave);
		if (sent % 8)
			continue;
		while (heard < sent)
			expect_line(master, heard++);
		say(master, "\003line ");
		expect(master, "interrupt\r\n");
		while (sent < heard + AHEAD)
			send_line(master, sent++);
	}
	while (heard < sent)
		expect_line(master, heard++);
	raw_step(raw_master, raw_slave, &raw_written, &raw_read, 0, RAW);
	CHECK(close(master) == 0); /* they are hung up on */
	CHECK(waitpid(shell, &status, 0) == shell && WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
	return 0;
}
