/* SPDX-License-Identifier: BSD-2-Clause */
/* Files, directories, devices, duplicates, sharing over fork, refusals: agent/fd_*.c with plugins/file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_table.h"
#include "tests/lib/fake_host.h"

extern const struct fermata_plugin plugin_file, plugin_pipe;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, NULL };

static char dir[64], path[96];

static int make_file(void)
{
	int fd;

	snprintf(path, sizeof(path), "%s/data", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_EXCL, 0600);
	CHECK(fd == 3);
	CHECK(write(fd, "0123456789", 10) == 10);
	return fd;
}

static void body_plain(void)
{
	int fd = make_file(), again;
	char buf[4];

	CHECK(lseek(fd, 4, SEEK_SET) == 4);
	CHECK(dup3(fd, 77, O_CLOEXEC) == 77);
	CHECK(dup2(fd, 9) == 9);
	again = open(path, O_WRONLY | O_APPEND | O_NONBLOCK); /* the same file, another description */
	CHECK(open("/dev/null", O_RDONLY) == 5 && open(dir, O_RDONLY | O_DIRECTORY) == 6);
	CHECK(close(again) == 0 && open(path, O_WRONLY | O_APPEND | O_NONBLOCK) == again);
	for (int i = 0; i < 2; i++) {
		fake_checkpoint_resume();
		fake_checkpoint_restart();
	}
	CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(77, F_GETFD) == FD_CLOEXEC && fcntl(9, F_GETFD) == 0);
	CHECK((fcntl(again, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK)) == (O_WRONLY | O_APPEND | O_NONBLOCK));
	CHECK((fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK)) == O_RDWR);
	CHECK(read(77, buf, 2) == 2 && !memcmp(buf, "45", 2));
	CHECK(read(9, buf, 2) == 2 && !memcmp(buf, "67", 2)); /* one offset */
	CHECK(write(again, "xy", 2) == 2);
	CHECK(pread(fd, buf, 4, 10) == 2 && !memcmp(buf, "xy", 2));
	CHECK(read(5, buf, 1) == 0 && faccessat(6, "data", R_OK, 0) == 0);
}

static void child_shared(void)
{
	char c;

	fake_checkpoint_restart();
	CHECK(read(3, &c, 1) == 1 && c == '2');
	fake_barrier();
	fake_barrier();
	CHECK(read(50, &c, 1) == 1 && c == '4'); /* the parent has closed its own */
}

static void body_shared(void)
{
	int fd = make_file(), pid;
	char c;

	CHECK(lseek(fd, 2, SEEK_SET) == 2 && dup2(fd, 50) == 50);
	CHECK(open(path, O_RDONLY) == 4);
	pid = fake_member(child_shared);
	close(3); /* held as 50 here, as 3 and 50 there */
	CHECK(open("/dev/zero", O_RDONLY) == 3);
	fake_checkpoint_restart();
	fake_barrier();
	CHECK(read(50, &c, 1) == 1 && c == '3');
	CHECK(read(4, &c, 1) == 1 && c == '0');
	close(50);
	fake_barrier();
	fake_reap(pid);
}

static void body_refused(void)
{
	int fd = make_file(), e;

	e = inotify_init1(0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "fd 4 (anon_inode:inotify) is not supported yet"));
	fake_resume();
	close(e);
	CHECK(close(fd) == 0 && open(path, O_RDONLY) == fd && fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "LEASE") && strstr(fake_text, path));
	fake_resume();
	CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
	fake_checkpoint_resume();
}

static int deleted_other, deleted_write;

static void child_deleted(void)
{
	char c;

	fake_checkpoint_restart();
	fake_barrier();
	CHECK(pread(deleted_other, &c, 1, 5000) == 1 && c == 'w');
	CHECK(lseek(deleted_other, 0, SEEK_CUR) == 7);
}

/* Three descriptions of one deleted file, one of them for writing only, one shared with a child; its mode forbids it all. */
static void body_deleted(void)
{
	int fd = make_file();
	struct stat st;
	pid_t pid;
	char c;

	deleted_other = open(path, O_RDONLY | O_NOFOLLOW);
	deleted_write = open(path, O_WRONLY | O_APPEND);
	CHECK(ftruncate(fd, 5000) == 0 && fchmod(fd, 0400) == 0 && unlink(path) == 0);
	CHECK(lseek(fd, 2, SEEK_SET) == 2 && lseek(deleted_other, 7, SEEK_SET) == 7);
	pid = fake_member(child_deleted);
	fake_checkpoint_restart();
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 5000 && (st.st_mode & 07777) == 0400);
	CHECK(read(fd, &c, 1) == 1 && c == '2');
	CHECK(write(deleted_write, "w", 1) == 1 && pread(fd, &c, 1, 5000) == 1 && c == 'w');
	fake_barrier();
	fake_reap(pid);
	CHECK(access(path, F_OK) < 0);
}

static void body_missing(void)
{
	make_file();
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	unlink(path);
	CHECK(fake_restart() == -ENOENT && strstr(fake_text, path) && strstr(fake_text, "missing") && strstr(fake_text, "--map"));
}

static void body_shrunk(void)
{
	make_file();
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	CHECK(truncate(path, 3) == 0);
	CHECK(fake_restart() == -ESTALE && strstr(fake_text, path) && strstr(fake_text, "3 bytes"));
}

/* What was below the directory is below another one: a file, one that is deleted, a FIFO, an O_PATH. */
static void body_moved(void)
{
	char rule[200], moved[80], now[96], to[128] = "", pipe_path[96];
	int fd = make_file(), size;

	snprintf(moved, sizeof(moved), "%s/new", dir);
	snprintf(pipe_path, sizeof(pipe_path), "%s/fifo", dir);
	CHECK(open(path, O_PATH) == 4 && mkfifo(pipe_path, 0600) == 0 && open(pipe_path, O_RDWR) == 5);
	CHECK(open(dir, O_RDWR | O_TMPFILE, 0600) == 6 && write(6, "gone", 4) == 4);
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	CHECK(mkdir(moved, 0700) == 0);
	snprintf(now, sizeof(now), "%s/data", moved);
	CHECK(rename(path, now) == 0);
	snprintf(now, sizeof(now), "%s/fifo", moved);
	CHECK(rename(pipe_path, now) == 0);
	size = snprintf(rule, sizeof(rule), "%s%c%s%c", dir, 0, moved, 0);
	fake_moved = (struct path_map){ rule, (size_t)size };
	CHECK(fake_restart() == 0);
	for (int n = fd; n <= 6; n++) {
		snprintf(now, sizeof(now), "/proc/self/fd/%d", n);
		CHECK(readlink(now, to, sizeof(to) - 1) > 0 && !strncmp(to, moved, strlen(moved)));
	}
	CHECK(pread(6, to, 4, 0) == 4 && !memcmp(to, "gone", 4) && access(path, F_OK) < 0 && access(pipe_path, F_OK) < 0);
}

static void run(unsigned int members, void (*body)(void))
{
	char command[96];

	strcpy(dir, "/tmp/fermata-fd-XXXXXX");
	assert_non_null(mkdtemp(dir));
	fake_run(members, body);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

static void test_plain(void **state) { run(1, body_plain); }
static void test_shared(void **state) { run(2, body_shared); }
static void test_refused(void **state) { run(1, body_refused); }
static void test_deleted(void **state) { run(2, body_deleted); }
static void test_missing(void **state) { run(1, body_missing); }
static void test_shrunk(void **state) { run(1, body_shrunk); }
static void test_moved(void **state) { run(1, body_moved); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),	cmocka_unit_test(test_shared), cmocka_unit_test(test_refused), cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_missing), cmocka_unit_test(test_shrunk), cmocka_unit_test(test_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
