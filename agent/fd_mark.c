/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which descriptors name one open file description, where kcmp is refused (containers). No state beyond the call.
 *
 * One is marked by something that the kernel keeps with the description and that means nothing at that moment; who sees the mark, and
 * its change, through another descriptor has the same one. It is put back at once.
 *
 *   a socket                    nothing: it has one description, under its one inode
 *   O_PATH                      nothing: such a description has nothing that could be shared, so each is taken for one of its own
 *   a directory                 O_NONBLOCK, which directories do not heed; their F_SETSIG is dnotify's
 *   O_ASYNC is on, or a lease   O_NOATIME: the kernel may send the signal of F_SETSIG at any moment. It is the owner's of the file
 *                               to set; where we are not that, it cannot be told, and the checkpoint is refused by the descriptor's name
 *   all else                    the signal of F_SETSIG, which is sent for O_ASYNC, dnotify and leases only
 *
 * Interleavings. Marks are made in QUIESCE (within a process) and in round 0 of DRAIN (between processes), when every thread of every program of the
 * job stands: nobody of it changes what is looked at. Several agents look at once, and those of other jobs may hold the same description (two jobs
 * of one shell have its terminal or its log file as a standard stream). So each holds a lock from before it reads the old value until that is back: there is never
 * more than one mark, and a mark that is seen is our own. The lock is a flock of our cgroup namespace, which is one object for all jobs of
 * a container, whoever runs them, since none makes its own; where a kernel has no such namespaces, of the job's directory.
 * Whoever is killed with a mark on lets the lock go. The next one takes the mark for the old value, which is enough: a mark is only ever
 * told from what was there before. It stays on the description, and the checkpoint fails, as for any process that is killed. The same
 * failure lets other processes go on while one may still look; what is put back is then, within a microsecond, what
 * was there before, and only where the mark still is. F_SETFL writes all flags: O_APPEND, O_NONBLOCK and O_ASYNC keep the values that
 * stood in the same call before.
 *
 * Processes outside of the job that hold the description run on: to deceive us they would have to set just that value between two of our
 * system calls, twice, in the order in which we change it.
 */
#include "agent/fd_mark.h"

#include <errno.h>
#include <sys/file.h>

#include "base/fdpass.h"

#define LOCK_TRIES 10000 /* of a millisecond */
#define SIGNALS 64

static int lock(void)
{
	const struct timespec pause = { 0, 1000000 };
	const char *directory = fdpass_directory();
	int fd = raw_open("/proc/thread-self/ns/cgroup", O_RDONLY | O_CLOEXEC, 0), r;

	if (fd < 0)
		fd = directory ? raw_open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -ENOENT;
	if (fd < 0)
		return fd;
	for (int i = 0; i < LOCK_TRIES && (r = (int)RAW2(SYS_flock, fd, LOCK_EX | LOCK_NB)) == -EWOULDBLOCK; i++)
		RAW2(SYS_nanosleep, &pause, NULL);
	if (!r)
		return fd;
	raw_close(fd);
	return r;
}

bool fd_mark_possible(uint32_t status_a, uint32_t status_b)
{
	return !((status_a ^ status_b) & O_ACCMODE) && !((status_a | status_b) & O_PATH);
}

static void choose(struct fd_mark *m, const struct stat *st, uint32_t status)
{
	bool flag = S_ISDIR(st->st_mode) || status & O_ASYNC || (S_ISREG(st->st_mode) && raw_fcntl(m->fd, F_GETLEASE, 0) != F_UNLCK);

	m->get = flag ? F_GETFL : F_GETSIG;
	m->set = flag ? F_SETFL : F_SETSIG;
	m->mask = !flag ? ~0L : S_ISDIR(st->st_mode) ? O_NONBLOCK : O_NOATIME;
}

static int put(const struct fd_mark *m, long value)
{
	return raw_fcntl(m->fd, m->set, value);
}

int fd_mark_begin(struct fd_mark *m, int fd, const struct stat *st, uint32_t status)
{
	int r;

	*m = (struct fd_mark){ .fd = fd, .lock = -EBADF, .is_socket = S_ISSOCK(st->st_mode) };
	if (m->is_socket || status & O_PATH)
		return 0;
	m->lock = lock();
	if (m->lock < 0)
		return m->lock;
	choose(m, st, status);
	m->old = raw_fcntl(fd, m->get, 0);
	m->on = m->get == F_GETFL ? m->old ^ m->mask : m->old % SIGNALS + 1;
	r = m->old < 0 ? (int)m->old : 0;
	if (!r && m->mask == O_NOATIME && st->st_uid != (uid_t)RAW0(SYS_geteuid))
		r = -EPERM; /* perhaps it could be taken away, but not put back */
	if (!r)
		r = put(m, m->on);
	if (r >= 0)
		return 0;
	raw_close(m->lock);
	return r;
}

static bool sees(const struct fd_mark *m, int other, long value)
{
	long now = raw_fcntl(other, m->get, 0);

	return now >= 0 && !((now ^ value) & m->mask);
}

bool fd_mark_is_on(const struct fd_mark *m, int other)
{
	bool same;

	if (!m->set)
		return m->is_socket;
	if (!sees(m, other, m->on))
		return false;
	put(m, m->old);
	same = sees(m, other, m->old);
	put(m, m->on);
	return same;
}

void fd_mark_end(struct fd_mark *m)
{
	if (m->set && sees(m, m->fd, m->on))
		put(m, m->old);
	if (m->lock >= 0)
		raw_close(m->lock);
	m->lock = -EBADF;
}
