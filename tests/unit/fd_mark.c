/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptions without kcmp and pidfd_getfd: agent/fd_mark.c, and agent/fd_table.c and fd_share*.c with it. Run under tests/lib/confined. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_mark.h"
#include "agent/fd_table.h"
#include "base/fdpass.h"
#include "base/macro.h"
#include "tests/lib/fake_host.h"

#define NOBODY 65534
#define MEMBERS 8

extern const struct fermata_plugin plugin_file, plugin_pipe, plugin_event;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, &plugin_event, NULL };

static char dir[64], path[96];

/* 1: one description; 0: two; or -errno. */
static int marked(int a, int b)
{
	uint32_t status = (uint32_t)fcntl(a, F_GETFL);
	struct fd_mark m;
	struct stat st;
	int r;

	CHECK(fstat(a, &st) == 0);
	if (!fd_mark_possible(status, (uint32_t)fcntl(b, F_GETFL)))
		return 0;
	r = fd_mark_begin(&m, a, &st, status);
	if (r)
		return r;
	r = fd_mark_is_on(&m, b);
	fd_mark_end(&m);
	return r;
}

/* And nothing may have changed by the question. */
static int same(int a, int b)
{
	uint32_t status_a = (uint32_t)fcntl(a, F_GETFL), status_b = (uint32_t)fcntl(b, F_GETFL);
	int signal_a = fcntl(a, F_GETSIG), signal_b = fcntl(b, F_GETSIG), r = marked(a, b);

	CHECK((uint32_t)fcntl(a, F_GETFL) == status_a && (uint32_t)fcntl(b, F_GETFL) == status_b);
	CHECK(fcntl(a, F_GETSIG) == signal_a && fcntl(b, F_GETSIG) == signal_b);
	return r;
}

/* @a and @b are two descriptions of one inode. */
static void try(int a, int b)
{
	int copy = dup(a);

	CHECK(a >= 0 && b >= 0 && copy >= 0);
	CHECK(same(a, copy) == 1 && same(copy, a) == 1 && same(a, b) == 0 && same(b, copy) == 0);
	close(copy);
}

static int make_file(void)
{
	snprintf(path, sizeof(path), "%s/data", dir);
	return open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

static void body_kinds(void)
{
	int file = make_file(), other = open(path, O_RDWR), pipes[2], ends[2], path_only[2];

	try(file, other);
	for (int sig = 0; sig <= 64; sig++) { /* whatever the program has put there: the same in both */
		CHECK(fcntl(file, F_SETSIG, sig) == 0 && fcntl(other, F_SETSIG, sig) == 0);
		try(file, other);
	}
	CHECK(fcntl(file, F_SETSIG, 5) == 0);
	try(file, other);
	try(open(dir, O_RDONLY | O_DIRECTORY), open(dir, O_RDONLY | O_DIRECTORY));
	try(open("/dev/null", O_RDWR), open("/dev/null", O_RDWR));
	try(eventfd(0, 0), eventfd(0, 0));
	CHECK(pipe(pipes) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pipes[0]);
	try(pipes[0], open(path, O_RDONLY));
	CHECK(same(pipes[0], pipes[1]) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && same(ends[0], dup(ends[0])) == 1);
	for (int i = 0; i < 2; i++)
		path_only[i] = open(dir, O_PATH);
	CHECK(same(path_only[0], dup(path_only[0])) == 0 && same(path_only[0], path_only[1]) == 0);
}

/* The signal of F_SETSIG may be sent at any moment: it is not touched. */
static void body_owned(void)
{
	int file = make_file(), other = open(path, O_RDWR | O_ASYNC), pipes[2];

	close(file);
	try(other, open(path, O_RDWR | O_ASYNC));
	try(open(path, O_RDWR | O_ASYNC | O_NOATIME), open(path, O_RDWR | O_ASYNC | O_NOATIME));
	CHECK(pipe(pipes) == 0 && fcntl(pipes[0], F_SETFL, O_ASYNC) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pipes[0]);
	try(pipes[0], open(path, O_RDONLY | O_ASYNC));
	other = open("/proc/self/exe", O_RDONLY);
	CHECK(fcntl(other, F_SETLEASE, F_RDLCK) == 0 || errno == EACCES);
	try(other, open("/proc/self/exe", O_RDONLY));
}

static void body_refused(void)
{
	int fd;

	CHECK(getuid() || (chown(fdpass_directory(), NOBODY, NOBODY) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0));
	CHECK((fd = open("/dev/zero", O_RDONLY | O_ASYNC)) == 3 && dup(fd) == 4); /* root's */
	CHECK(same(fd, 4) == -EPERM);
	CHECK(fake_checkpoint() == -EPERM && strstr(fake_text, "fd 4 and fd 3 (/dev/zero) cannot be compared: kcmp is refused"));
	fake_resume();
	close(4);
	fake_checkpoint_resume(); /* alone it need not be compared */
}

static int member_number;

/* Several ask the same of the same descriptions, all at once: of two jobs, as they have a standard stream in common. */
static void child_at_once(void)
{
	if (member_number % 2)
		fdpass_job(dir, getpid());
	for (int i = 0; i < 3000; i++)
		CHECK(marked(10, 11) == 1 && marked(10, 12) == 0 && marked(12, 11) == 0);
}

static void body_at_once(void)
{
	int pids[4];

	CHECK(dup2(open("/dev/null", O_RDONLY), 10) == 10 && dup2(10, 11) == 11 && dup2(open("/dev/null", O_RDONLY), 12) == 12);
	for (int i = 0; i < (int)ARRAY_SIZE(pids); i++) {
		member_number = i;
		pids[i] = fake_member(child_at_once);
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		fake_reap(pids[i]);
	CHECK(fcntl(10, F_GETSIG) == 0 && fcntl(12, F_GETSIG) == 0);
}

static const struct fd_entry *entry_of(int fd)
{
	for (uint32_t i = 0; i < fd_table.count; i++)
		for (uint32_t k = 0; k < fd_table.entries[i]->fd_count; k++)
			if (fd_table.entries[i]->fds[k].fd == fd)
				return fd_table.entries[i];
	fake_die(__FILE__, __LINE__, "a descriptor is in no entry");
}

/* Each has: 10 and 12, which all share (10 also as 11); 13, which it shares with its elder; 14, its own; all of them of one inode. 15: an eventfd of all, 16: its own. */
static void member(const int *pids, int n)
{
	CHECK(open("/dev/null", O_RDONLY) == 3 && dup2(3, 14) == 14 && eventfd(0, 0) == 4 && dup2(4, 16) == 16);
	close(3);
	close(4);
	for (int round = 0; round < 3; round++) {
		CHECK(fake_checkpoint() == 0);
		CHECK(entry_of(10) == entry_of(11) && entry_of(10) != entry_of(12) && entry_of(10) != entry_of(14) && entry_of(13) != entry_of(14));
		CHECK((int)entry_of(10)->leader_pid == pids[0] && entry_of(10)->leader_fd == 10 && (int)entry_of(12)->leader_pid == pids[0]);
		CHECK((int)entry_of(13)->leader_pid == pids[n & ~1] && entry_of(13)->leader_fd == 13);
		CHECK((int)entry_of(14)->leader_pid == pids[n] && (int)entry_of(16)->leader_pid == pids[n]);
		CHECK((int)entry_of(15)->leader_pid == pids[0]);
		fake_resume();
	}
	CHECK(fcntl(10, F_GETSIG) == 0 && fcntl(13, F_GETSIG) == 7);
}

static int *member_pids;

static void child_many(void)
{
	member_pids[member_number] = getpid();
	member(member_pids, member_number);
}

static int open_at(int at)
{
	int fd = open("/dev/null", O_RDONLY);

	CHECK(dup2(fd, at) == at && close(fd) == 0);
	return at;
}

static void body_many(void)
{
	int pids[MEMBERS] = { getpid() };

	member_pids = pids;
	CHECK(dup2(open_at(10), 11) == 11 && open_at(12) == 12 && eventfd(0, 0) == 3 && dup2(3, 15) == 15 && close(3) == 0);
	for (int i = 0; i < MEMBERS; i++) {
		if (i % 2 == 0)
			CHECK(fcntl(open_at(13), F_SETSIG, 7) == 0);
		if (i == 0)
			CHECK(dup2(13, 20) == 20);
		member_number = i;
		if (i)
			pids[i] = fake_member(child_many);
	}
	CHECK(dup2(20, 13) == 13);
	member(pids, 0);
	for (int i = 1; i < MEMBERS; i++)
		fake_reap(pids[i]);
}

static int is_locked_by_other(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	CHECK(fcntl(fd, F_GETLK, &lock) == 0);
	return lock.l_type != F_UNLCK;
}

static void child_keeps(void)
{
	fake_checkpoint_resume();
	CHECK(is_locked_by_other(3));
	fake_barrier();
}

/* What closing a descriptor of the same file would take away. */
static void body_keeps(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = make_file(), pid, third;

	CHECK(fd == 3);
	pid = fake_member(child_keeps);
	third = fake_member(child_keeps);
	CHECK(fcntl(fd, F_SETLK, &lock) == 0);
	fake_checkpoint_resume();
	fake_barrier();
	fake_reap(pid);
	fake_reap(third);
}

static void test_confined(void **state)
{
	assert_int_equal(syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fdpass_take(getppid(), 0), -EPERM); /* nobody serves there */
}

static void run(unsigned int members, void (*body)(void))
{
	char name[] = "/tmp/fermata-mark-XXXXXX";

	assert_non_null(mkdtemp(name));
	memcpy(dir, name, sizeof(name));
	chmod(dir, 0755);
	fake_run(members, body);
	snprintf(path, sizeof(path), "%s/data", dir);
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
}

static void test_kinds(void **state) { run(1, body_kinds); }
static void test_owned(void **state) { run(1, body_owned); }
static void test_refused(void **state) { run(1, body_refused); }
static void test_at_once(void **state) { run(1, body_at_once); }
static void test_many(void **state) { run(MEMBERS, body_many); }
static void test_keeps(void **state) { run(3, body_keeps); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_confined), cmocka_unit_test(test_kinds), cmocka_unit_test(test_owned),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_many), cmocka_unit_test(test_keeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
