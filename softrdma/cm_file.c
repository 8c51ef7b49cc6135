/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's files, where this library is preloaded: the libc's open, openat, write, fstat and close,
 * which lead to softrdma_cm_* for /dev/infiniband/rdma_cm and its descriptors, and to the next library for all others; and stat and
 * access, which answer for files that are not there (node.c). Where it is
 * opened with dlopen nobody binds to these names, and this library's own calls do not either (libc.list): who has opened it calls
 * softrdma_cm_* by himself.
 *
 * The next library's functions are looked up by a constructor, and only if the library is one that others bind to: elsewhere
 * RTLD_NEXT has no meaning. Before that, and without them, the system call is made.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/cm.h"
#include "softrdma/node.h"
#include "softrdma/device.h"

#define NAMES(X)                                                    \
	X(int, open, (const char *path, int flags, ...))            \
	X(int, open64, (const char *path, int flags, ...))          \
	X(int, openat, (int dir, const char *path, int flags, ...)) \
	X(int, openat64, (int dir, const char *path, int flags, ...)) \
	X(ssize_t, write, (int fd, const void *buf, size_t n))      \
	X(int, fstat, (int fd, struct stat *st))                    \
	X(int, fstat64, (int fd, struct stat64 *st))                \
	X(int, close, (int fd))                                     \
	X(int, stat, (const char *path, struct stat *st))           \
	X(int, stat64, (const char *path, struct stat64 *st))       \
	X(int, access, (const char *path, int mode))

#define POINTER(ret, name, params) ret(*name) params;
static struct { NAMES(POINTER) } next;

__attribute__((constructor)) static void next_find(void)
{
	void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);

	if (!program || dlsym(program, "softrdma_cm_open") != (void *)softrdma_cm_open)
		return;
#define LOOK_UP(ret, name, params) next.name = (__typeof__(next.name))dlsym(RTLD_NEXT, #name);
	NAMES(LOOK_UP)
}

/* The thread sanitizer has wrappers of these names itself, and comes first: there the program has ours, in front of it (tests/unit). */
#if !defined(__SANITIZE_THREAD__) || defined(CM_FILE_OF_PROGRAM)
static long answer(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

#define OPEN(name, params, dir, args)                                   \
	EXPORT int name params                                          \
	{                                                               \
		va_list ap;                                             \
		mode_t mode;                                            \
		int r = softrdma_cm_open(path, flags);                  \
                                                                        \
		if (unlikely(r != -ENOTTY))                             \
			return (int)answer(r);                          \
		va_start(ap, flags);                                    \
		mode = mode_of(flags, ap);                              \
		va_end(ap);                                             \
		return next.name ? next.name args : (int)answer(raw_openat(dir, path, flags, mode)); \
	}

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...), dir, (dir, path, flags, mode))
OPEN(openat64, (int dir, const char *path, int flags, ...), dir, (dir, path, flags, mode))

/*
 * A command that has to wait does so here, with no lock held, as the kernel's does: for the descriptor to be readable. When
 * another thread closes it meanwhile, the kernel's goes on waiting, for good: so do we.
 */
static long command(int fd, const void *buf, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t channel = 0;
	long r;

	for (;;) {
		r = softrdma_cm_command(fd, buf, n, &channel);
		if (r != -ESTALE && (r != -EAGAIN || raw_fcntl(fd, F_GETFL, 0) & O_NONBLOCK))
			return r;
		if (poll(&p, r == -ESTALE ? 0 : 1, -1) < 0)
			return -errno;
	}
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	long r;

	if (unlikely(softrdma_cm_is_channel(fd))) {
		r = command(fd, buf, n);
		if (r != -ENOTTY)
			return answer(r);
	}
	return next.write ? next.write(fd, buf, n) : answer(raw_write(fd, buf, n));
}

EXPORT int fstat(int fd, struct stat *st)
{
	int r = next.fstat ? next.fstat(fd, st) : (int)answer(RAW2(SYS_fstat, fd, st));

	if (!r)
		softrdma_cm_fstat(fd, st);
	return r;
}

/* The same struct under another name, where files have 64-bit sizes. */
EXPORT int fstat64(int fd, struct stat64 *st)
{
	int r = next.fstat64 ? next.fstat64(fd, st) : (int)answer(RAW2(SYS_fstat, fd, st));

	if (!r)
		softrdma_cm_fstat(fd, (struct stat *)st);
	return r;
}
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout");

EXPORT int close(int fd)
{
	int r = softrdma_cm_close(fd);

	if (unlikely(r != -ENOTTY))
		return (int)answer(r);
	return next.close ? next.close(fd) : (int)answer(raw_close(fd));
}

/* What the next one has answered, or ours if there is nothing. */
static int stat_answer(int r, const char *path, struct stat *st)
{
	int before = errno;

	if (likely(!r || before != ENOENT) || softrdma_node_stat(path, st))
		return r;
	return 0;
}

EXPORT int stat(const char *path, struct stat *st)
{
	return stat_answer(next.stat ? next.stat(path, st) : (int)answer(RAW4(SYS_newfstatat, AT_FDCWD, path, st, 0)), path, st);
}

EXPORT int stat64(const char *path, struct stat64 *st)
{
	return stat_answer(next.stat64 ? next.stat64(path, st) : (int)answer(RAW4(SYS_newfstatat, AT_FDCWD, path, st, 0)), path,
			   (struct stat *)st);
}

EXPORT int access(const char *path, int mode)
{
	int r = next.access ? next.access(path, mode) : (int)answer(RAW3(SYS_faccessat, AT_FDCWD, path, mode));
	struct stat st;

	if (likely(!r || errno != ENOENT) || softrdma_node_stat(path, &st))
		return r;
	return (int)answer(softrdma_node_access(&st, mode));
}

#endif

/* Was this library there before the program, for everybody to bind to? */
int sr_is_preloaded(void)
{
	return next.close != NULL;
}
