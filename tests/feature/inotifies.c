/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inotify: watches keep their numbers, with gaps, and events, also when made with a relative path before the directory was changed, on a symbolic link itself, and
 * through a descriptor that is not the first; they tell of what happens after the last restart, in its order, and of nothing else.
 * A child has one and knows nothing of its watches, as it has executed a program; after a restart its number is the lower one.
 */
#include "feature.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int first, second, copy;
static int wd_dir, wd_file, wd_link, wd_target, wd_other, wd_once;

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	CHECK(fd >= 0 && close(fd) == 0);
}

static int watch(int fd, const char *path, uint32_t mask)
{
	int wd = fd == first ? inotify_add_watch(fd, path, mask) : (int)syscall(SYS_inotify_add_watch, fd, path, mask);

	CHECK(wd > 0);
	return wd;
}

static void expect_nothing(int fd)
{
	char c[4096];

	CHECK(read(fd, c, sizeof(c)) == -1 && errno == EAGAIN);
}

/* The next event, and no other one before it. */
static void expect(int fd, int wd, uint32_t mask, const char *name)
{
	static char room[8192];
	static size_t at, have;
	static int from;
	const struct inotify_event *e;

	if (at == have || from != fd) {
		ssize_t n;

		CHECK(at == have);
		n = read(fd, room, sizeof(room));
		CHECK(n > 0);
		at = 0;
		have = (size_t)n;
		from = fd;
	}
	e = (const struct inotify_event *)(room + at);
	at += sizeof(*e) + e->len;
	if (e->wd != wd || e->mask != mask || strcmp(e->len ? e->name : "", name))
		feature_fail("watch %d, events %x, \"%s\" instead of %d, %x, \"%s\"", e->wd, e->mask, e->len ? e->name : "", wd, mask, name);
}

static void drain(int fd)
{
	char room[4096];

	while (read(fd, room, sizeof(room)) > 0)
		;
}

static void build(void)
{
	int gone;

	CHECK(mkdir("dir", 0700) == 0 && mkdir("other", 0700) == 0 && symlink("target", "link") == 0);
	make_file("file");
	make_file("target");
	make_file("once");
	first = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	second = (int)syscall(SYS_inotify_init1, IN_NONBLOCK); /* as some libraries do */
	copy = dup(second);
	CHECK(first >= 0 && second >= 0 && copy >= 0);
	gone = watch(first, ".", IN_CREATE);
	wd_dir = watch(first, "dir", IN_CREATE | IN_DELETE | IN_MOVE);
	CHECK(inotify_rm_watch(first, gone) == 0);
	gone = watch(first, "other", IN_CREATE);
	CHECK(inotify_rm_watch(first, gone) == 0);
	wd_file = watch(first, "file", IN_MODIFY | IN_ATTRIB);
	wd_link = watch(first, "link", IN_DELETE_SELF | IN_DONT_FOLLOW);
	wd_target = watch(first, "link", IN_MODIFY);
	wd_other = watch(copy, "other", IN_CREATE | IN_EXCL_UNLINK);
	wd_once = watch(copy, "once", IN_MODIFY | IN_ONESHOT);
	drain(first);
	CHECK(wd_dir == 2 && wd_file == 4 && wd_link == 5 && wd_target == 6 && wd_other == 1 && wd_once == 2);
}

static void append(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND);

	CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
}

static void check_first(void)
{
	append("file");
	expect(first, wd_file, IN_MODIFY, "");
	CHECK(chmod("file", 0644) == 0);
	expect(first, wd_file, IN_ATTRIB, "");
	append("target");
	expect(first, wd_target, IN_MODIFY, "");
	make_file("dir/a");
	expect(first, wd_dir, IN_CREATE, "a");
	CHECK(unlink("dir/a") == 0);
	expect(first, wd_dir, IN_DELETE, "a");
	CHECK(unlink("link") == 0);
	expect(first, wd_link, IN_DELETE_SELF, "");
	expect(first, wd_link, IN_IGNORED, "");
	expect_nothing(first);
	CHECK(inotify_add_watch(first, "dir", IN_CREATE) == wd_dir && inotify_add_watch(first, ".", IN_MOVE) > wd_target);
}

static void check_second(void)
{
	make_file("other/b");
	append("once");
	append("once");
	expect(second, wd_other, IN_CREATE, "b");
	expect(second, wd_once, IN_MODIFY, "");
	expect(second, wd_once, IN_IGNORED, "");
	expect_nothing(copy);
}

/* Has @second until the pipe is closed. */
static pid_t begin_holder(int *ret_way)
{
	char number[16];
	int way[2];
	pid_t pid;

	CHECK(pipe(way) == 0);
	snprintf(number, sizeof(number), "%d", way[0]);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(close(way[1]) == 0);
		execl("/proc/self/exe", "inotifies", number, NULL);
		CHECK(!"exec");
	}
	CHECK(close(way[0]) == 0);
	*ret_way = way[1];
	return pid;
}

int main(int argc, char **argv)
{
	int way, status;
	pid_t holder;
	char c;

	if (argc == 2)
		return read(atoi(argv[1]), &c, 1) != 0;
	build();
	feature_ready();
	do {
		holder = begin_holder(&way);
		for (int i = 0; i < 10; i++)
			feature_work();
		expect_nothing(first);
		expect_nothing(copy);
		CHECK(close(way) == 0 && waitpid(holder, &status, 0) == holder && status == 0);
	} while (feature_step());
	check_first();
	check_second();
	return 0;
}
