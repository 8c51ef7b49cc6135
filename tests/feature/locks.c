/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File locks of the three kinds, seen from another process that may not have them; one that is handed to and fro between two processes, each of
 * which waits for it. A child tries the locks of its parent through descriptions of its own; so it does with a file whose name is gone, and one that never had any; and with thousands
 * of locks of one file.
 */
#include "feature.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct area {
	unsigned long inside, turns[2];
} *area;

static int lock(int fd, int command, short type, off_t start, off_t length)
{
	struct flock f = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };

	return fcntl(fd, command, &f);
}

/* One at a time, by a lock that the other waits for. */
static void turn(int me, int fd)
{
	CHECK(lock(fd, F_SETLKW, F_WRLCK, 1000, 1) == 0);
	CHECK(__atomic_add_fetch(&area->inside, 1, __ATOMIC_SEQ_CST) == 1);
	feature_work();
	area->turns[me]++;
	CHECK(__atomic_sub_fetch(&area->inside, 1, __ATOMIC_SEQ_CST) == 0);
	CHECK(lock(fd, F_SETLK, F_UNLCK, 1000, 1) == 0);
}

static int open_it(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0);
	return fd;
}

static void refused(int result)
{
	CHECK(result == -1 && (errno == EAGAIN || errno == EACCES));
}

/* Two files without a name: locks of the three kinds, and for each another description, which the child has. */
static int nameless[2], others[2];

static void lock_nameless(void)
{
	char path[32];

	CHECK((nameless[1] = memfd_create("locks", 0)) >= 0);
	nameless[0] = open_it("deleted");
	CHECK(unlink("deleted") == 0);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", nameless[i]);
		CHECK((others[i] = open(path, O_RDWR)) >= 0);
		CHECK(lock(nameless[i], F_SETLK, F_WRLCK, 10, 20) == 0 && lock(nameless[i], F_OFD_SETLK, F_WRLCK, 100, 20) == 0 && flock(nameless[i], LOCK_EX) == 0);
	}
}

static void try_nameless(pid_t parent)
{
	for (int i = 0; i < 2; i++) {
		struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 50 };

		CHECK(fcntl(others[i], F_GETLK, &f) == 0 && f.l_type == F_WRLCK && f.l_pid == parent && f.l_start == 10 && f.l_len == 20);
		f = (struct flock){ .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 90, .l_len = 50 };
		CHECK(fcntl(others[i], F_OFD_GETLK, &f) == 0 && f.l_type == F_WRLCK && f.l_pid == -1 && f.l_start == 100 && f.l_len == 20);
		refused(flock(others[i], LOCK_SH | LOCK_NB));
	}
}

enum { MANY = 3000 }; /* locks of one file: every other byte */

static void lock_many(void)
{
	int fd = open_it("many");

	for (int i = 0; i < MANY; i++)
		CHECK(lock(fd, F_SETLK, i % 3 ? F_WRLCK : F_RDLCK, 2 * i, 1) == 0);
}

static void try_many(int fd, pid_t parent, int i)
{
	struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1 };

	CHECK(fcntl(fd, F_GETLK, &f) == 0 && f.l_type == (i % 3 ? F_WRLCK : F_RDLCK) && f.l_pid == parent);
	f = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i + 1, .l_len = 1 };
	CHECK(fcntl(fd, F_GETLK, &f) == 0 && f.l_type == F_UNLCK);
}

static void child_main(pid_t parent)
{
	int many = open_it("many"), tried = 0;
	int posix = open_it("posix"), ofd = open_it("ofd"), whole = open_it("whole"), shared = open_it("shared");

	do { /* once at least, however few steps there are */
		struct flock f = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 1 };

		CHECK(fcntl(posix, F_GETLK, &f) == 0 && f.l_type == F_WRLCK && f.l_pid == parent && f.l_start == 10 && f.l_len == 20);
		refused(lock(posix, F_SETLK, F_WRLCK, 500, 100));
		CHECK(lock(posix, F_SETLK, F_RDLCK, 500, 100) == 0 && lock(posix, F_SETLK, F_UNLCK, 500, 100) == 0);
		refused(lock(ofd, F_OFD_SETLK, F_WRLCK, 0, 0));
		refused(flock(whole, LOCK_SH | LOCK_NB));
		refused(flock(shared, LOCK_EX | LOCK_NB));
		try_nameless(parent);
		try_many(many, parent, tried++ * 7 % MANY);
		try_many(many, parent, MANY - 1);
		turn(1, posix);
	} while (!feature_finished());
	_exit(0);
}

int main(void)
{
	int posix = open_it("posix"), ofd = open_it("ofd"), whole = open_it("whole"), shared = open_it("shared"), status;
	pid_t child;

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK(lock(posix, F_SETLK, F_WRLCK, 10, 20) == 0 && lock(posix, F_SETLK, F_RDLCK, 500, 100) == 0);
	CHECK(lock(ofd, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
	CHECK(flock(whole, LOCK_EX) == 0 && flock(shared, LOCK_SH) == 0);
	lock_nameless();
	lock_many();
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		CHECK(close(ofd) == 0 && close(whole) == 0 && close(shared) == 0 && close(nameless[0]) == 0 && close(nameless[1]) == 0);
		child_main(getppid());
	}
	feature_ready();
	do {
		turn(0, posix);
		CHECK(flock(whole, LOCK_EX | LOCK_NB) == 0);
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0 && area->turns[1]);
	return 0;
}
