/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors: the agent's own answer EBADF to the program, and what a device's library makes is noted (device.c). For
 * all other callers a wrapper is one test and a jump. A descriptor of the device may be a file that its library stands in for (device_file.c): it is asked
 * first. No state.
 *
 * A device's sockets are made and closed by system calls. Another library may stand in for these names (librspreload): it would take them for the
 * program's, and it wants thread-local memory, which a thread of the device does not have.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/whole.h"
#include "agent/wrap.h"

static int is_hidden(int fd)
{
	if (likely(!fd_is_reserved(fd)))
		return 0;
	errno = EBADF;
	return 1;
}

/* Stands behind device_making_enter and the call. */
static int noted(int fd)
{
	if (likely(!fermata_in_device()))
		return fd;
	if (fd >= 0)
		device_fd_add(fd);
	device_making_end();
	return fd;
}

/* Descriptors that may be files of a device's library. What happens inside that library is its own matter. */
static bool may_be_file(int fd)
{
	return unlikely(device_owns_fd(fd)) && !fermata_in_device();
}

/* As the libc answers. */
static long answer(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

static int device_close(int fd)
{
	int r;

	device_making_begin();
	device_fd_remove(fd);
	r = fermata_in_device() ? (int)answer(raw_close(fd)) : real.close(fd);
	device_making_end();
	return r;
}

EXPORT int close(int fd)
{
	WRAP_READY(close);
	if (is_hidden(fd))
		return -1;
	if (may_be_file(fd)) {
		int r = device_file_close(fd);

		if (r != FERMATA_NOT_MINE)
			return (int)answer(r);
	}
	if (likely(!device_owns_fd(fd)))
		return real.close(fd);
	return device_close(fd);
}

EXPORT ssize_t write(int fd, const void *data, size_t n)
{
	long r = FERMATA_NOT_MINE;

	WRAP_READY(write);
	if (may_be_file(fd))
		r = device_file_write(fd, data, n);
	else if (unlikely(agent.own_credentials) && fermata_in_device() && device_owns_fd(fd))
		r = device_write(fd, data, n);
	if (r != FERMATA_NOT_MINE)
		return answer(r);
	whole_begin();
	r = real.write(fd, data, n);
	return whole_is_cut(r) && (size_t)r < n ? whole_write(fd, data, n, r) : r;
}

EXPORT int dup2(int from, int to)
{
	WRAP_READY(dup2);
	if (is_hidden(from) || is_hidden(to))
		return -1;
	device_making_enter();
	device_fd_remove(to);
	return noted(real.dup2(from, to));
}

EXPORT int dup3(int from, int to, int flags)
{
	WRAP_READY(dup3);
	if (is_hidden(from) || is_hidden(to))
		return -1;
	device_making_enter();
	device_fd_remove(to);
	return noted(real.dup3(from, to, flags));
}

/* Calls close_range for the stretches between our descriptors. */
static int close_around(unsigned int first, unsigned int last, int flags)
{
	unsigned int start = first, fd = first, top = last < 65536 ? last : 65535;
	int r = 0;

	for (; fd <= top && !r; fd++) {
		if (!fd_is_reserved((int)fd))
			continue;
		if (fd > start)
			r = real.close_range(start, fd - 1, flags);
		start = fd + 1;
	}
	return r || start > last ? r : real.close_range(start, last, flags);
}

EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	WRAP_READY(close_range);
	if (first > last || !agent.active)
		return real.close_range(first, last, flags);
	return close_around(first, last, flags);
}

EXPORT void closefrom(int first)
{
	WRAP_READY(closefrom);
	if (!agent.active || close_around(first < 0 ? 0 : (unsigned int)first, UINT_MAX, 0))
		real.closefrom(first);
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

static int file_open(const char *path, int flags)
{
	int r = device_file_open(path, flags);

	return r == FERMATA_NOT_MINE ? proc_file_open(path, flags) : r;
}

#define OPEN_WRAPPER(name, params, args)                   \
	EXPORT int name params                             \
	{                                                  \
		va_list ap;                                \
		mode_t mode;                               \
		int r;                                     \
                                                           \
		WRAP_READY(name);                          \
		r = file_open(path, flags);                \
		if (unlikely(r != FERMATA_NOT_MINE))       \
			return (int)answer(r);             \
		va_start(ap, flags);                       \
		mode = mode_of(flags, ap);                 \
		va_end(ap);                                \
		device_making_enter();                            \
		return noted(real.name args);              \
	}

OPEN_WRAPPER(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WRAPPER(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN_WRAPPER(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN_WRAPPER(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))

/* libc opens the file by a name of its own. */
#define STREAM_WRAPPER(name)                                                                                   \
	EXPORT FILE *name(const char *path, const char *mode)                                                  \
	{                                                                                                      \
		int r;                                                                                         \
                                                                                                               \
		WRAP_READY(name);                                                                              \
		r = proc_file_open(path, mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY | O_CLOEXEC : O_RDWR); \
		return likely(r == FERMATA_NOT_MINE) ? real.name(path, mode) : stream(r, mode);                \
	}

static FILE *stream(int fd, const char *mode)
{
	FILE *f = answer(fd) < 0 ? NULL : fdopen(fd, mode);

	if (f && !strchr(mode, 'e'))
		fcntl(fd, F_SETFD, 0);
	if (!f && fd >= 0)
		raw_close(fd);
	return f;
}

STREAM_WRAPPER(fopen)
STREAM_WRAPPER(fopen64)

#define FD_WRAPPER(name, params, args)             \
	EXPORT int name params                     \
	{                                          \
		WRAP_READY(name);                  \
		device_making_enter();                    \
		return noted(real.name args);      \
	}

FD_WRAPPER(memfd_create, (const char *name, unsigned int flags), (name, flags))
FD_WRAPPER(eventfd, (unsigned int value, int flags), (value, flags))
FD_WRAPPER(epoll_create1, (int flags), (flags))
FD_WRAPPER(timerfd_create, (int clock, int flags), (clock, flags))

EXPORT int socket(int domain, int type, int protocol)
{
	WRAP_READY(socket);
	if (likely(!fermata_in_device()))
		return real.socket(domain, type, protocol);
	device_making_begin();
	return noted((int)answer(RAW3(SYS_socket, domain, type, protocol)));
}

EXPORT int accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	WRAP_READY(accept4);
	if (likely(!fermata_in_device()))
		return real.accept4(fd, a, len, flags);
	device_making_begin();
	return noted((int)answer(RAW4(SYS_accept4, fd, a, len, flags)));
}

/* Connections of a port have SO_REUSEADDR of their listener: without it a restart could not bind to the port while one of before the checkpoint is in TIME_WAIT (plugins/socket/socket.c). */
EXPORT int listen(int fd, int backlog)
{
	int r, domain = 0, yes = 1;
	socklen_t length = sizeof(domain);

	WRAP_READY(listen);
	r = real.listen(fd, backlog);
	if (!r && !RAW5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) && (domain == AF_INET || domain == AF_INET6))
		RAW5(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	return r;
}

static int noted_pair(int r, const int fds[2])
{
	if (likely(!fermata_in_device()))
		return r;
	if (!r) {
		device_fd_add(fds[0]);
		device_fd_add(fds[1]);
	}
	device_making_end();
	return r;
}

EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
	WRAP_READY(socketpair);
	if (likely(!fermata_in_device()))
		return real.socketpair(domain, type, protocol, fds);
	device_making_begin();
	return noted_pair((int)answer(RAW4(SYS_socketpair, domain, type, protocol, fds)), fds);
}

EXPORT int pipe2(int fds[2], int flags)
{
	WRAP_READY(pipe2);
	device_making_enter();
	return noted_pair(real.pipe2(fds, flags), fds);
}
