/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds an object that is not supported: a checkpoint has to refuse and name its descriptor, which this program writes to the file
 * "refused", and the program has to go on unharmed. The argument says which.
 */
#include "feature.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static int locked_file(void)
{
	int fd = open("locked", O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	return fd;
}

static int make(const char *kind)
{
	sigset_t set;

	sigemptyset(&set);
	if (strcmp(kind, "epoll") == 0)
		return epoll_create1(0);
	if (strcmp(kind, "eventfd") == 0)
		return eventfd(5, 0);
	if (strcmp(kind, "timerfd") == 0)
		return timerfd_create(CLOCK_MONOTONIC, 0);
	if (strcmp(kind, "signalfd") == 0)
		return signalfd(-1, &set, 0);
	if (strcmp(kind, "inotify") == 0)
		return inotify_init();
	if (strcmp(kind, "lock") == 0)
		return locked_file();
	if (strcmp(kind, "udp") == 0)
		return socket(AF_INET, SOCK_DGRAM, 0);
	if (strcmp(kind, "timer") == 0)
		return 0; /* timer_create's first one is number 0 */
	feature_fail("unknown kind %s", kind);
}

int main(int argc, char **argv)
{
	FILE *f = fopen("refused", "w");
	timer_t timer;
	int fd, is_timer;

	CHECK(argc == 2 && f);
	fd = make(argv[1]);
	CHECK(fd >= 0);
	is_timer = strcmp(argv[1], "timer") == 0;
	if (is_timer)
		CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	CHECK(fprintf(f, "%s %d\n", is_timer ? "timer" : "fd", fd) > 0 && fclose(f) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(fcntl(fd, F_GETFD) == 0);
	} while (feature_step());
	return 0;
}
