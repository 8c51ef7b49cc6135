/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See numbered_pty.h. The kernel gives the lowest number that is free: those below the wanted one are taken until it comes, and let go. Two makers that did so at
 * once would be in each other's way, so they lock /dev/pts meanwhile; a lock that somebody else holds is not waited for long, as it only
 * costs the number. No state.
 */
#include "base/numbered_pty.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "base/sys.h"

#define HELD_MAX 256
#define LOCK_TRIES 500 /* of 2 ms */

static int lock_numbers(void)
{
	const struct timespec step = { 0, 2000000 };
	int fd = raw_open("/dev/pts", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

	for (int i = 0; fd >= 0 && i < LOCK_TRIES && RAW2(SYS_flock, fd, LOCK_EX | LOCK_NB) == -EWOULDBLOCK; i++)
		RAW2(SYS_nanosleep, &step, NULL);
	return fd;
}

int numbered_pty_open(const char *path, int flags, uint32_t want)
{
	int held[HELD_MAX], count = 0, fd = -EAGAIN, lock = lock_numbers();
	uint32_t number;

	for (;;) {
		int next = raw_open(path, flags | O_NOCTTY | O_CLOEXEC, 0);

		if (next < 0) {
			fd = count ? held[--count] : next;
			break;
		}
		fd = next;
		if (raw_ioctl(fd, TIOCGPTN, &number) < 0 || number >= want || count == HELD_MAX)
			break;
		held[count++] = fd;
	}
	while (count)
		raw_close(held[--count]);
	if (lock >= 0)
		raw_close(lock);
	return fd;
}
