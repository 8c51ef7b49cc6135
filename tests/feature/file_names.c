/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files whose names change while they are written to: one that goes to and fro between two names, one that is removed and made anew every few
 * steps, one below a directory that is removed with it, a temporary file without a name, one that got a name, one that has another name by now, a link; and a directory that is read bit by bit.
 */
#include "feature.h"

#include <sys/stat.h>
#include <sys/syscall.h>

enum { ENTRIES = 100 };

static int moving, fresh, below, unnamed, named, linked, directory;
static unsigned long moved, made, written;

static void number_write(int fd, unsigned long n)
{
	CHECK(pwrite(fd, &n, sizeof(n), 0) == sizeof(n));
}

static void number_check(int fd, unsigned long n)
{
	unsigned long is = 0;

	CHECK(pread(fd, &is, sizeof(is), 0) == sizeof(is) && is == n);
}

/* A descriptor and a name must lead to one file. One that was missing at a restart has another inode then, maybe between the two calls. */
static void name_check(int fd, const char *name)
{
	struct stat a, b;
	int same = 0;

	for (int tries = 0; tries < 3 && !same; tries++) {
		CHECK(fstat(fd, &a) == 0 && stat(name, &b) == 0);
		same = a.st_ino == b.st_ino && a.st_dev == b.st_dev;
	}
	if (!same || a.st_nlink != 1)
		feature_fail("%s is inode %lu, and fd %d is inode %lu, of %lu names", name, b.st_ino, fd, a.st_ino, a.st_nlink);
}

static void move(void)
{
	name_check(moving, moved % 2 ? "there" : "here");
	number_check(moving, moved);
	CHECK(rename(moved % 2 ? "there" : "here", moved % 2 ? "here" : "there") == 0);
	number_write(moving, ++moved);
}

static void check_given(void)
{
	name_check(linked, "second");
	name_check(named, "named");
	number_check(linked, written);
	number_check(named, written);
	number_write(linked, written + 1);
	number_write(named, written + 1);
}

static void make(void)
{
	if (made) {
		name_check(fresh, "fresh");
		name_check(below, "below/this/file");
		number_check(fresh, made);
		number_check(below, made);
		CHECK(close(fresh) == 0 && (unlink("fresh") == 0 || errno == ENOENT));
		CHECK(close(below) == 0);
		/* What is not open at the checkpoint is as it was left. */
		CHECK(unlink("below/this/file") == 0 || errno == ENOENT);
		CHECK(rmdir("below/this") == 0 || errno == ENOENT || errno == ENOTEMPTY);
		CHECK(rmdir("below") == 0 || errno == ENOENT || errno == ENOTEMPTY);
	}
	made++;
	CHECK((fresh = open("fresh", O_RDWR | O_CREAT | O_TRUNC, 0604)) >= 0);
	do { /* a directory is as it was left, too: a later life may have removed it */
		CHECK(mkdir("below", 0700) == 0 || errno == EEXIST);
		CHECK(mkdir("below/this", 0700) == 0 || errno == EEXIST || errno == ENOENT);
		below = open("below/this/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	} while (below < 0 && errno == ENOENT);
	CHECK(below >= 0);
	number_write(fresh, made);
	number_write(below, made);
}

static void read_on(void)
{
	struct entry {
		uint64_t ino, off;
		unsigned short len;
		unsigned char type;
		char name[];
	};
	static unsigned long seen[ENTRIES], round = 1;
	_Alignas(8) char buffer[256];
	long n = syscall(SYS_getdents64, directory, buffer, sizeof(buffer));

	CHECK(n >= 0);
	for (long at = 0; at < n; at += ((struct entry *)(void *)(buffer + at))->len) {
		const struct entry *e = (struct entry *)(void *)(buffer + at);

		if (e->name[0] != 'e')
			continue;
		CHECK(++seen[atoi(e->name + 1)] == round);
	}
	if (n)
		return;
	for (int i = 0; i < ENTRIES; i++)
		if (seen[i] != round)
			feature_fail("entry %d was seen %lu times in %lu rounds", i, seen[i], round);
	round++;
	CHECK(lseek(directory, 0, SEEK_SET) == 0);
}

/* What they were opened by is no name of theirs. */
static void make_given(void)
{
	char path[32];

	CHECK((linked = open("first", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && link("first", "second") == 0 && unlink("first") == 0);
	CHECK((named = open(".", O_RDWR | O_TMPFILE, 0600)) >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", named);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
	number_write(linked, 0);
	number_write(named, 0);
}

int main(void)
{
	struct stat st;

	CHECK(mkdir("entries", 0700) == 0 && (directory = open("entries", O_RDONLY | O_DIRECTORY)) >= 0);
	for (int i = 0; i < ENTRIES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "e%d", i);
		CHECK(close(openat(directory, name, O_WRONLY | O_CREAT, 0600)) == 0);
	}
	CHECK((moving = open("here", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	CHECK((unnamed = open(".", O_RDWR | O_TMPFILE, 0600)) >= 0);
	number_write(moving, 0);
	number_write(unnamed, 0);
	make_given();
	make();
	feature_ready();
	do {
		feature_work();
		check_given();
		number_check(unnamed, written);
		number_write(unnamed, ++written);
		move();
		read_on();
		if (written % 5 == 0)
			make();
		CHECK(fstat(fresh, &st) == 0 && (st.st_mode & 0777) == (0604 & ~022));
	} while (feature_step());
	return 0;
}
