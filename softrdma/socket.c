/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's sockets. They are made and closed by the libc's names, so that who interposes those knows that they are a device's; but where the library
 * is preloaded by system calls: there another library may stand in for the libc's names (librspreload), which would take them for the program's and wants
 * thread-local storage. No state.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"

static int answer(int r)
{
	return r < 0 ? -errno : r;
}

int sr_socket(int domain, int type)
{
	type |= SOCK_CLOEXEC | SOCK_NONBLOCK;
	return sr_is_preloaded() ? (int)RAW3(SYS_socket, domain, type, 0) : answer(socket(domain, type, 0));
}

int sr_socketpair(int type, int ret_pair[2])
{
	type |= SOCK_CLOEXEC | SOCK_NONBLOCK;
	return sr_is_preloaded() ? (int)RAW4(SYS_socketpair, AF_UNIX, type, 0, ret_pair) : answer(socketpair(AF_UNIX, type, 0, ret_pair));
}

int sr_accept(int fd)
{
	const int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;

	return sr_is_preloaded() ? (int)RAW4(SYS_accept4, fd, NULL, NULL, flags) : answer(accept4(fd, NULL, NULL, flags));
}

void sr_close(int fd)
{
	if (fd < 0)
		return;
	if (sr_is_preloaded())
		raw_close(fd);
	else
		close(fd);
}
