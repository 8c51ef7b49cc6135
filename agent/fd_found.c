/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that a plugin has found in what others hold (fd_unpack): messages that are under way. Owns the list of their numbers, which
 * lies in saved memory like fd_table. The checkpoint thread is alone, no locks.
 *
 * The program must not notice that they had numbers: that a pipe's writer is one more, say. So each process closes its own once its
 * records are made, in WRITE, before any process goes on; a terminal only in fd_resume, as what was taken out of it goes back by that.
 * At a restart a process has what it leads until all others have taken theirs, which is when it goes on itself.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/fd_table.h"
#include "base/sys.h"

static struct {
	int *fd; /* -EBADF: closed */
	uint32_t count, room;
} found;

int fermata_fd_found(int fd)
{
	if (found.count == found.room) {
		uint32_t room = found.room ? found.room * 2 : 16;
		int *more = fermata_alloc(room * sizeof(*more));

		if (!more) {
			raw_close(fd);
			return fermata_fail(-ENOMEM, "no memory for %u descriptors that are under way", room);
		}
		if (found.count)
			memcpy(more, found.fd, found.count * sizeof(*more));
		fermata_free(found.fd);
		found.fd = more;
		found.room = room;
	}
	found.fd[found.count++] = fd;
	return fd_table_take(fd);
}

void fermata_fd_drop(int fd)
{
	for (uint32_t i = 0; i < found.count; i++)
		if (found.fd[i] == fd) {
			raw_close(fd);
			found.fd[i] = -EBADF;
		}
}

static bool is_terminal(int fd)
{
	struct stat st;

	return RAW2(SYS_fstat, fd, &st) == 0 && S_ISCHR(st.st_mode);
}

void fd_found_close(void)
{
	for (uint32_t i = 0; i < found.count; i++)
		if (found.fd[i] >= 0 && !is_terminal(found.fd[i]))
			raw_close(found.fd[i]);
}

void fd_found_end(bool closed)
{
	for (uint32_t i = 0; i < found.count; i++)
		if (found.fd[i] >= 0 && (!closed || is_terminal(found.fd[i])))
			raw_close(found.fd[i]);
	fermata_free(found.fd);
	memset(&found, 0, sizeof(found));
}
