/* SPDX-License-Identifier: BSD-2-Clause */
/* Pipes: contents, end of file, other descriptions, sharing, streams that lead outside. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_table.h"
#include "tests/lib/fake_host.h"

extern const struct fermata_plugin plugin_file, plugin_pipe;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, NULL };

static int p[2];

static void fill(int fd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(write(fd, &(char){ (char)(i * 7) }, 1) == 1);
}

static void drain(int fd, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c;

		CHECK(read(fd, &c, 1) == 1 && c == (char)(i * 7));
	}
}

static void body_content(void)
{
	char c;

	CHECK(pipe2(p, O_NONBLOCK | O_CLOEXEC) == 0);
	CHECK(fcntl(p[0], F_SETPIPE_SZ, 1 << 17) == 1 << 17);
	fill(p[1], 70000);
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	CHECK(fcntl(p[0], F_GETPIPE_SZ) == 1 << 17);
	CHECK(fcntl(p[0], F_GETFL) & O_NONBLOCK && fcntl(p[1], F_GETFL) & O_NONBLOCK);
	CHECK(fcntl(p[0], F_GETFD) == FD_CLOEXEC && fcntl(p[1], F_GETFD) == FD_CLOEXEC);
	drain(p[0], 70000);
	CHECK(read(p[0], &c, 1) == -1 && errno == EAGAIN);
	fill(p[1], 10);
	fake_checkpoint_resume(); /* the bytes stay */
	drain(p[0], 10);
	close(p[1]);
	CHECK(read(p[0], &c, 1) == 0); /* no stray write end */
}

static void body_eof(void)
{
	int q[2];
	char c;

	signal(SIGPIPE, SIG_IGN);
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	fill(p[1], 100);
	close(p[1]);
	close(q[0]);
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	drain(p[0], 100);
	CHECK(read(p[0], &c, 1) == 0);
	CHECK(write(q[1], "x", 1) == -1 && errno == EPIPE);
}

static void child_reader(void)
{
	char c;

	close(p[1]);
	fake_checkpoint_restart();
	drain(p[0], 5000);
	CHECK(read(p[0], &c, 1) == 1 && c == 'z');
	CHECK(read(p[0], &c, 1) == 0);
}

static void body_fork(void)
{
	int pid;

	CHECK(pipe(p) == 0);
	pid = fake_member(child_reader);
	close(p[0]);
	fill(p[1], 5000);
	fake_checkpoint_restart();
	CHECK(write(p[1], "z", 1) == 1);
	close(p[1]);
	fake_reap(pid);
}

/* Reader and writer are children, the parent holds no end; both ends shared by a third. */
static int ready[2];

static void child_writer(void)
{
	close(p[0]);
	fill(p[1], 3000);
	fake_barrier();
	fake_checkpoint_restart();
	CHECK(write(p[1], "z", 1) == 1);
}

static void child_reader2(void)
{
	char c;

	close(p[1]);
	fake_barrier();
	fake_checkpoint_restart();
	drain(p[0], 3000);
	CHECK(read(p[0], &c, 1) == 1 && c == 'z');
	CHECK(read(p[0], &c, 1) == 0);
}

static void body_siblings(void)
{
	int a, b, other;
	char path[32];

	CHECK(pipe(ready) == 0 && pipe(p) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[1]);
	a = fake_member(child_reader2);
	b = fake_member(child_writer);
	other = open(path, O_WRONLY | O_NONBLOCK); /* another description of the write end */
	CHECK(other >= 0);
	close(p[0]);
	close(p[1]);
	fake_barrier();
	fake_checkpoint_restart();
	CHECK(fcntl(other, F_GETFL) & O_NONBLOCK);
	fake_reap(b);
	close(other);
	fake_reap(a);
}

static void body_outside(void)
{
	/* p leads to a process outside: the runner's parent, so to say, holds its ends as reserved descriptors */
	CHECK(pipe(p) == 0);
	CHECK(dup2(p[0], FAKE_RESERVED + 10) >= 0);
	close(p[0]);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "outside the job"));
	fake_resume();
	CHECK(dup2(p[1], 1) == 1); /* as a standard stream it is re-attached */
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	CHECK(fake_restart() == 0);
	CHECK(write(1, "one", 3) == 3 && write(p[1], "two", 3) == 3);
	{
		char buf[8];

		CHECK(read(FAKE_RESERVED + 10, buf, 8) == 6 && !memcmp(buf, "onetwo", 6));
	}
}

static void body_named(void)
{
	char path[64], other[80], c;
	int w;

	snprintf(path, sizeof(path), "/tmp/fermata-fifo-%d", getpid());
	CHECK(mkfifo(path, 0600) == 0);
	p[0] = open(path, O_RDONLY | O_NONBLOCK);
	p[1] = open(path, O_WRONLY);
	w = open(path, O_RDWR);
	fill(p[1], 3000);
	fake_checkpoint_resume();
	fake_checkpoint_restart();
	drain(p[0], 3000);
	CHECK(read(p[0], &c, 1) == -1 && errno == EAGAIN && !(fcntl(p[1], F_GETFL) & O_NONBLOCK));
	close(p[1]);
	close(w);
	CHECK(read(p[0], &c, 1) == 0);
	fake_checkpoint_restart();
	CHECK(read(p[0], &c, 1) == 0);
	snprintf(other, sizeof(other), "%s-other", path);
	CHECK(link(path, other) == 0 && unlink(path) == 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, path));
	fake_resume();
	CHECK(unlink(other) == 0);
	fake_checkpoint_restart();
	CHECK(read(p[0], &c, 1) == 0 && access(path, F_OK) != 0);
}

static void test_named(void **state) { fake_run(1, body_named); }
static void test_content(void **state) { fake_run(1, body_content); }
static void test_eof(void **state) { fake_run(1, body_eof); }
static void test_fork(void **state) { fake_run(2, body_fork); }
static void test_siblings(void **state) { fake_run(3, body_siblings); }
static void test_outside(void **state) { fake_run(1, body_outside); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_content),	 cmocka_unit_test(test_eof),	 cmocka_unit_test(test_fork),
		cmocka_unit_test(test_named), cmocka_unit_test(test_siblings), cmocka_unit_test(test_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
