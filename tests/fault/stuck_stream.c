/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TCP stream whose writer stands before a closed window, for test-stuck. Plain, as a feature program.
 *
 *     stuck_stream [shared]
 *
 * The writer writes on as soon as it can, until there is a file "finish"; the reader reads from when there is a file "read" to the
 * end, and checks each byte. Alone: the first process writes, its child reads. Shared: these two only hold their ends, and a child
 * of each, with a higher pid, does the work. What happens is in the file "state", as struct state.
 */
#include "../feature/feature.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct state {
	volatile uint64_t written, read; /* bytes */
	volatile int32_t write_error, read_error; /* errno */
	volatile int32_t write_ended, read_ended;
	volatile int32_t holder, writer, taker, reader; /* pids */
} *state;
static uint64_t written; /* the file keeps its value over a restart, this does not */

static char byte_at(uint64_t at)
{
	return (char)(at * 31 + at / 4093);
}

static ssize_t write_on(int fd, size_t n)
{
	static char buf[50000];
	ssize_t done;

	for (size_t i = 0; i < n; i++)
		buf[i] = byte_at(written + i);
	done = write(fd, buf, n);
	if (done > 0)
		written += (uint64_t)done;
	state->written = written;
	return done;
}

/* Something that was sent has not been taken yet: it may make room. */
static int is_under_way(int fd)
{
	int unsent, all;

	CHECK(ioctl(fd, SIOCOUTQ, &all) == 0 && ioctl(fd, SIOCOUTQNSD, &unsent) == 0);
	return all != unsent;
}

/* Until nothing fits any more: the window is closed. */
static void fill(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	do {
		while (write_on(fd, 50000) > 0)
			;
		CHECK(errno == EAGAIN);
	} while (is_under_way(fd) || poll(&p, 1, 0) > 0);
	CHECK(fcntl(fd, F_SETFL, 0) == 0);
}

static void run_writer(int fd)
{
	while (!state->write_error && !feature_finished())
		if (write_on(fd, 1 + written % 50000) < 0)
			state->write_error = errno;
	if (!state->write_error)
		CHECK(shutdown(fd, SHUT_WR) == 0);
	state->write_ended = 1;
}

static void run_reader(int fd)
{
	static char buf[1 << 16];
	ssize_t n = 1;

	while (access("read", F_OK) != 0)
		poll(NULL, 0, 2);
	while (n > 0) {
		n = read(fd, buf, 1 + state->read % sizeof(buf));
		for (ssize_t i = 0; i < n; i++)
			CHECK(buf[i] == byte_at(state->read + (uint64_t)i));
		state->read += n > 0 ? (uint64_t)n : 0;
	}
	if (n < 0)
		state->read_error = errno;
	state->read_ended = 1;
}

static void run(void (*fn)(int fd), int fd, int shared, volatile int32_t *pid)
{
	int status, child = shared ? fork() : 0;

	CHECK(child >= 0);
	if (child) {
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		return;
	}
	*pid = getpid();
	fn(fd);
	if (shared)
		_exit(0);
}

static void connect_tcp(int *writes, int *reads)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(l, (struct sockaddr *)&a, len) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &len) == 0);
	CHECK((*writes = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(*writes, (struct sockaddr *)&a, len) == 0);
	CHECK((*reads = accept(l, NULL, NULL)) >= 0 && close(l) == 0);
}

int main(int argc, char **argv)
{
	int shared = argc > 1, fd, writes, reads, status;
	pid_t child;

	signal(SIGPIPE, SIG_IGN);
	CHECK((fd = open("state", O_RDWR | O_CREAT, 0600)) >= 0 && ftruncate(fd, sizeof(*state)) == 0);
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(state != MAP_FAILED && close(fd) == 0);
	connect_tcp(&writes, &reads);
	fill(writes);
	state->holder = getpid();
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		state->taker = getpid();
		CHECK(close(writes) == 0);
		run(run_reader, reads, shared, &state->reader);
		_exit(0);
	}
	CHECK(close(reads) == 0);
	while (!state->reader)
		poll(NULL, 0, 1);
	run(run_writer, writes, shared, &state->writer);
	CHECK(waitpid(child, &status, 0) == child);
	return status ? 3 : state->read == state->written && !state->read_error && !state->write_error ? 0 : 2;
}
