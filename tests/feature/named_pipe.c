/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Named pipes: one whose ends are open in two processes, with numbers in it at any moment, one that is open for both, one without a name, and one whose reader waits for
 * its first writer, which is not end of file.
 */
#include "feature.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void child(void)
{
	uint32_t value, want = 0;
	int fd = open("stream", O_RDONLY);
	ssize_t n;

	CHECK(fd >= 0);
	while ((n = read(fd, &value, 4)) == 4)
		CHECK(value == want++);
	CHECK(n == 0);
	_exit(0);
}

static int hangs_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK(poll(&p, 1, 0) >= 0);
	return p.revents != 0;
}

/* Opened for reading before anybody had it for writing, and its name taken away if @deleted; what its writers leave is end of file. */
static int waiting(const char *name, int deleted, int ended)
{
	int fd, writer;

	CHECK(mkfifo(name, 0600) == 0 && (fd = open(name, O_RDONLY | O_NONBLOCK)) >= 0);
	if (ended)
		CHECK((writer = open(name, O_WRONLY)) >= 0 && close(writer) == 0);
	CHECK(!deleted || unlink(name) == 0);
	return fd;
}

int main(void)
{
	int both, gone, stream, status, waits[2], ended[2];
	struct stat st;
	uint32_t value = 0;
	char text[5];
	pid_t pid;

	CHECK(mkfifo("both", 0600) == 0 && mkfifo("stream", 0600) == 0 && mkfifo("gone", 0600) == 0);
	CHECK((both = open("both", O_RDWR | O_NONBLOCK)) >= 0 && write(both, "fifo", 4) == 4);
	CHECK((gone = open("gone", O_RDWR | O_NONBLOCK)) >= 0 && write(gone, "gone", 4) == 4 && unlink("gone") == 0);
	for (int deleted = 0; deleted < 2; deleted++) {
		waits[deleted] = waiting(deleted ? "waits-deleted" : "waits", deleted, 0);
		ended[deleted] = waiting(deleted ? "ended-deleted" : "ended", deleted, 1);
	}
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK((stream = open("stream", O_WRONLY)) >= 0);
	feature_ready();
	do {
		for (int i = 0; i < 100; i++, value++)
			CHECK(write(stream, &value, 4) == 4);
		CHECK(read(both, text, 5) == 4 && memcmp(text, "fifo", 4) == 0 && write(both, "fifo", 4) == 4);
		CHECK(read(gone, text, 5) == 4 && memcmp(text, "gone", 4) == 0 && write(gone, "gone", 4) == 4);
		CHECK(fstat(gone, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_nlink == 0 && access("gone", F_OK) != 0);
		for (int deleted = 0; deleted < 2; deleted++)
			CHECK(!hangs_up(waits[deleted]) && hangs_up(ended[deleted]));
		feature_work();
	} while (feature_step());
	CHECK(close(stream) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
