/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel does for a program and tells nobody of: asynchronous I/O, by io_uring and libaio. What is in flight, and how a ring or a context was made, the kernel does not tell: they cannot be held. io_uring is off on many hosts
 * (kernel.io_uring_disabled, Docker's default seccomp profile), libaio on some, and programs have another way (a data base its own threads): in a job they are told that this kernel is without,
 * and go that way. Seen are the calls of liburing and libaio that make one, and the system calls by number; what is made otherwise (those libraries linked statically) is refused at a
 * checkpoint. Likewise sends without a copy (MSG_ZEROCOPY, which a socket allows by SO_ZEROCOPY): the kernel numbers them for each socket, and says later which are through; neither the number nor what is still to be
 * said can be had. And the kernel's TLS (TCP_ULP), whose keys and sequence numbers it keeps to itself: libraries encrypt by themselves then. And a program that chooses among the sockets of a
 * port (SO_ATTACH_REUSEPORT_*), of which nothing can be asked: the kernel chooses then. No state.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "agent/agent.h"
#include "agent/wrap.h"
#include "base/log.h"

struct io_context;
struct io_uring;
struct io_uring_params;

/* Their headers are not needed: who calls these has them. */
EXPORT int io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags);
EXPORT int io_uring_queue_init_params(unsigned int entries, struct io_uring *ring, struct io_uring_params *p);
EXPORT int io_uring_queue_init_mem(unsigned int entries, struct io_uring *ring, struct io_uring_params *p, void *buf, size_t size);
EXPORT int io_uring_setup(unsigned int entries, struct io_uring_params *p);
EXPORT int io_setup(int events, struct io_context **context);
EXPORT int io_queue_init(int events, struct io_context **context);

static int refuse(const char *what)
{
	log_info("process %u: %s is refused to it, which a checkpoint cannot hold", agent.pid, what);
	return -ENOSYS;
}

int io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags)
{
	return refuse("io_uring");
}

int io_uring_queue_init_params(unsigned int entries, struct io_uring *ring, struct io_uring_params *p)
{
	return refuse("io_uring");
}

int io_uring_queue_init_mem(unsigned int entries, struct io_uring *ring, struct io_uring_params *p, void *buf, size_t size)
{
	return refuse("io_uring");
}

int io_uring_setup(unsigned int entries, struct io_uring_params *p)
{
	return refuse("io_uring");
}

int io_setup(int events, struct io_context **context)
{
	return refuse("libaio");
}

int io_queue_init(int events, struct io_context **context)
{
	return refuse("libaio");
}

static int refuse_option(const char *what, int as_error)
{
	refuse(what);
	errno = as_error;
	return -1;
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	WRAP_READY(setsockopt);
	if (unlikely(level == SOL_SOCKET && name == SO_ZEROCOPY && agent.active))
		return refuse_option("MSG_ZEROCOPY", ENOPROTOOPT);
	if (unlikely(level == IPPROTO_TCP && name == TCP_ULP && agent.active))
		return refuse_option("TLS of the kernel", ENOENT); /* as where its module is missing */
	if (unlikely(level == SOL_SOCKET && (name == SO_ATTACH_REUSEPORT_CBPF || name == SO_ATTACH_REUSEPORT_EBPF) && agent.active))
		return refuse_option("a program that chooses among the sockets of a port (SO_ATTACH_REUSEPORT_*)", ENOPROTOOPT);
	return real.setsockopt(fd, level, name, value, length);
}

long wrap_async_syscall(long nr)
{
	errno = -refuse(nr == SYS_io_setup ? "libaio" : "io_uring");
	return -1;
}
