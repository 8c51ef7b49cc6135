/* SPDX-License-Identifier: BSD-2-Clause */
/* Named pipes: one whose ends are open in two processes, with numbers in it at any moment, and one that is open for both. */
#include "feature.h"

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

int main(void)
{
	int both, stream, status;
	uint32_t value = 0;
	char text[5];
	pid_t pid;

	CHECK(mkfifo("both", 0600) == 0 && mkfifo("stream", 0600) == 0);
	CHECK((both = open("both", O_RDWR | O_NONBLOCK)) >= 0 && write(both, "fifo", 4) == 4);
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	CHECK((stream = open("stream", O_WRONLY)) >= 0);
	feature_ready();
	do {
		for (int i = 0; i < 100; i++, value++)
			CHECK(write(stream, &value, 4) == 4);
		CHECK(read(both, text, 5) == 4 && memcmp(text, "fifo", 4) == 0 && write(both, "fifo", 4) == 4);
		feature_work();
	} while (feature_step());
	CHECK(close(stream) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
