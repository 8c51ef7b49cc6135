/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Open files: numbers, offsets, flags and close-on-exec; descriptors that are duplicates share an offset, also with a child; the
 * ones opened apart do not. A directory, /dev/null and a file read to its middle, too. A file that nobody
 * reads keeps the time when it was read last.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int plain, duplicate, far_duplicate, appending, apart, cloexec, directory, null_fd, zero_fd, unread;
static const struct timespec read_at = { 1000000000, 500000000 }, written_at = { 1100000000, 0 };
static struct area {
	off_t offset;
	int turn;
} *area;

static void open_all(void)
{
	CHECK((plain = open("plain", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	CHECK((duplicate = dup(plain)) >= 0);
	CHECK((far_duplicate = fcntl(plain, F_DUPFD, 300)) == 300);
	CHECK((appending = open("plain", O_WRONLY | O_APPEND)) >= 0);
	CHECK((apart = open("plain", O_RDONLY)) >= 0);
	CHECK((cloexec = open("plain", O_RDONLY | O_CLOEXEC | O_NOATIME)) >= 0);
	CHECK((directory = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK((null_fd = open("/dev/null", O_RDWR)) >= 0);
	CHECK((zero_fd = open("/dev/zero", O_RDONLY)) >= 0);
	for (int i = 0; i < 1024; i++)
		CHECK(write(plain, "0123456789abcdef", 16) == 16);
	CHECK(lseek(apart, 4000, SEEK_SET) == 4000 && lseek(plain, 100, SEEK_SET) == 100);
	area->offset = 100;
	CHECK((unread = open("unread", O_RDWR | O_CREAT, 0600)) >= 0 && write(unread, "x", 1) == 1);
	CHECK(futimens(unread, (struct timespec[]){ read_at, written_at }) == 0);
}

static void times_check(void)
{
	struct stat st;

	CHECK(fstat(unread, &st) == 0);
	CHECK(st.st_atim.tv_sec == read_at.tv_sec && st.st_atim.tv_nsec == read_at.tv_nsec);
	CHECK(st.st_mtim.tv_sec == written_at.tv_sec && st.st_mtim.tv_nsec == written_at.tv_nsec);
}

static void flags_check(void)
{
	CHECK((fcntl(plain, F_GETFL) & O_ACCMODE) == O_RDWR && (fcntl(apart, F_GETFL) & O_ACCMODE) == O_RDONLY);
	CHECK(fcntl(appending, F_GETFL) & O_APPEND);
	CHECK(fcntl(cloexec, F_GETFD) == FD_CLOEXEC && fcntl(plain, F_GETFD) == 0);
	CHECK(lseek(apart, 0, SEEK_CUR) == 4000 && lseek(cloexec, 0, SEEK_CUR) == 0);
	CHECK(fcntl(far_duplicate + 1, F_GETFD) == -1 && errno == EBADF);
}

/* One reads on from where the other stood. */
static void turn(int me, int fd)
{
	char c;

	if (__atomic_load_n(&area->turn, __ATOMIC_ACQUIRE) != me)
		return;
	CHECK(lseek(fd, 0, SEEK_CUR) == area->offset);
	CHECK(read(fd, &c, 1) == 1 && c == "0123456789abcdef"[area->offset % 16]);
	area->offset++;
	if (area->offset > 15000)
		CHECK((area->offset = lseek(fd, 100, SEEK_SET)) == 100);
	__atomic_store_n(&area->turn, !me, __ATOMIC_RELEASE);
}

int main(void)
{
	char buf[16];
	pid_t child;
	int status;

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	open_all();
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		while (!feature_finished())
			turn(1, duplicate);
		_exit(0);
	}
	feature_ready();
	do {
		feature_work();
		turn(0, far_duplicate);
		flags_check();
		times_check();
		CHECK(write(null_fd, "x", 1) == 1 && read(null_fd, buf, 1) == 0);
		CHECK(read(zero_fd, buf, 16) == 16 && buf[15] == 0);
		CHECK(fchdir(directory) == 0);
		CHECK(openat(directory, "nowhere", O_RDONLY) == -1 && errno == ENOENT);
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
