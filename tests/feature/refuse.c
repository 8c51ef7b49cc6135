/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds an object that is not supported: a checkpoint has to refuse and name its descriptor, or its name, which this program writes to the file
 * "refused", and the program has to go on unharmed. The argument says which.
 */
#include "feature.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>

static int locked_file(void)
{
	int fd = open("locked", O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	return fd;
}

/* Watches a file under a number that is closed, kept open by a duplicate. */
static int stale_epoll(void)
{
	int set = epoll_create1(0), ends[2];
	struct epoll_event e = { .events = EPOLLIN };

	CHECK(set >= 0 && pipe(ends) == 0 && dup(ends[0]) >= 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &e) == 0 && close(ends[0]) == 0);
	return set;
}

static char part[32];

/* Shared memory, of which only the beginning is mapped. */
static int mapped_part(void)
{
	int fd;

	snprintf(part, sizeof(part), "/feature-part-%d", getpid());
	fd = shm_open(part, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	return fd;
}

static int make(const char *kind)
{
	if (strcmp(kind, "stale_epoll") == 0)
		return stale_epoll();
	if (strcmp(kind, "part") == 0)
		return mapped_part();
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
	if (*part)
		CHECK(fprintf(f, "/dev/shm%s is shared memory\n", part) > 0);
	else
		CHECK(fprintf(f, "%s %d\n", is_timer ? "timer" : "fd", fd) > 0);
	CHECK(fclose(f) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(fcntl(fd, F_GETFD) >= 0);
	} while (feature_step());
	if (*part)
		CHECK(shm_unlink(part) == 0);
	return 0;
}
