/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw system calls. Each returns the kernel's own answer: a value >= 0 or -errno; errno is never touched, no
 * cancellation point is passed, no libc lock is taken. They are safe in signal handlers, in the checkpoint thread
 * and in the restorer.
 */
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>

#include "base/arch/x86_64/syscall.h"

#define RAW6(nr, a, b, c, d, e, f) \
	arch_syscall6((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW5(nr, a, b, c, d, e) RAW6(nr, a, b, c, d, e, 0)
#define RAW4(nr, a, b, c, d) RAW6(nr, a, b, c, d, 0, 0)
#define RAW3(nr, a, b, c) RAW6(nr, a, b, c, 0, 0, 0)
#define RAW2(nr, a, b) RAW6(nr, a, b, 0, 0, 0, 0)
#define RAW1(nr, a) RAW6(nr, a, 0, 0, 0, 0, 0)
#define RAW0(nr) RAW6(nr, 0, 0, 0, 0, 0, 0)

/* The kernel's sigset_t has 8 bytes; glibc's has 128. */
#define RAW_SIGSET_SIZE 8

static inline long raw_read(int fd, void *buf, size_t n) { return RAW3(SYS_read, fd, buf, n); }
static inline long raw_write(int fd, const void *buf, size_t n) { return RAW3(SYS_write, fd, buf, n); }
static inline long raw_pread(int fd, void *buf, size_t n, uint64_t off) { return RAW4(SYS_pread64, fd, buf, n, off); }
static inline long raw_pwrite(int fd, const void *buf, size_t n, uint64_t off)
{
	return RAW4(SYS_pwrite64, fd, buf, n, off);
}
static inline int raw_open(const char *path, int flags, mode_t mode)
{
	return (int)RAW4(SYS_openat, AT_FDCWD, path, flags, mode);
}
static inline int raw_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	return (int)RAW4(SYS_openat, dirfd, path, flags, mode);
}
/* A new file that is ours to read and write, whatever umask the program has. */
static inline int raw_create(int dirfd, const char *path, int flags)
{
	int fd = raw_openat(dirfd, path, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		RAW2(SYS_fchmod, fd, 0600);
	return fd;
}
static inline int raw_close(int fd) { return (int)RAW1(SYS_close, fd); }
static inline int raw_dup3(int from, int to, int flags) { return (int)RAW3(SYS_dup3, from, to, flags); }
static inline int raw_fcntl(int fd, int cmd, long arg) { return (int)RAW3(SYS_fcntl, fd, cmd, arg); }
static inline int raw_ioctl(int fd, unsigned long req, void *arg) { return (int)RAW3(SYS_ioctl, fd, req, arg); }
static inline long raw_lseek(int fd, int64_t off, int whence) { return RAW3(SYS_lseek, fd, off, whence); }
/* The address, or -errno in the range [-4095, -1]: test with raw_is_error(). */
static inline void *raw_mmap(void *at, size_t len, int prot, int flags, int fd, uint64_t off)
{
	return (void *)RAW6(SYS_mmap, at, len, prot, flags, fd, off);
}
static inline int raw_munmap(void *at, size_t len) { return (int)RAW2(SYS_munmap, at, len); }
static inline int raw_mprotect(void *at, size_t len, int prot) { return (int)RAW3(SYS_mprotect, at, len, prot); }
static inline int raw_getpid(void) { return (int)RAW0(SYS_getpid); }
static inline int raw_gettid(void) { return (int)RAW0(SYS_gettid); }
static inline int raw_getppid(void) { return (int)RAW0(SYS_getppid); }
static inline int raw_tgkill(int pid, int tid, int sig) { return (int)RAW3(SYS_tgkill, pid, tid, sig); }
static inline int raw_sigprocmask(int how, const uint64_t *set, uint64_t *ret_old)
{
	return (int)RAW4(SYS_rt_sigprocmask, how, set, ret_old, RAW_SIGSET_SIZE);
}
static inline long raw_futex(uint32_t *word, int op, uint32_t val, const struct timespec *timeout, uint32_t val3)
{
	return RAW6(SYS_futex, word, op, val, timeout, 0, val3);
}
static inline int raw_clock_gettime(clockid_t clock, struct timespec *ret)
{
	return (int)RAW2(SYS_clock_gettime, clock, ret);
}
static inline _Noreturn void raw_exit_thread(int status)
{
	for (;;)
		RAW1(SYS_exit, status);
}
static inline _Noreturn void raw_exit_group(int status)
{
	for (;;)
		RAW1(SYS_exit_group, status);
}

static inline int raw_is_error(const void *p)
{
	return (unsigned long)p >= (unsigned long)-4095;
}

/* Loops of the plain calls: all of @n, or -errno; a premature end of file is -ENODATA. Restart on EINTR. */
int raw_read_all(int fd, void *buf, size_t n);
int raw_write_all(int fd, const void *buf, size_t n);
int raw_pread_all(int fd, void *buf, size_t n, uint64_t off);
int raw_pwrite_all(int fd, const void *buf, size_t n, uint64_t off);

/*
 * Opens what is there, @flags as open(2) has them, though its mode may not let its owner any more, who has had it open before it was so: the mode is wider for a moment then. Several
 * may be at one file. The descriptor or -errno.
 */
int raw_open_again(const char *path, int flags);

/* Makes the directories above @path that are missing, for their user alone, as far as they can be made. */
void raw_make_parents(const char *path);

/* Reads the whole of a small file (of /proc, say) into @buf and ends it with a NUL. The length, -errno, or -EFBIG. */
long raw_read_file(const char *path, char *buf, size_t size);
/* Where field @number (3 and on, proc_pid_stat(5)) begins in what was read of a /proc/PID/stat; NULL: it is not one. */
char *raw_process_field(char *text, int number);
void raw_descriptors_raise(void); /* the limit of how many there may be, as far as it goes */

/* The number of a device, which sysfs has in file @path; 0: it has none. */
dev_t raw_read_device(const char *path);

/* What the kernel says that process @pid does: 'R', 'S', 'T' stopped, 't' held by a debugger, 'Z' ended, ..; 0: there is none. */
char raw_process_state(int pid);

/* Of its threads none goes on, and one is on its way out (PF_EXITING), from where none comes back: not a zombie yet. */
bool raw_process_is_ending(int pid);

/* Its number in its own pid namespace: the last of NSpid (Linux 4.1), before which it is @pid; 0: there is none. */
uint32_t raw_process_inner(int pid);

/* Calls @fn with the name of each entry of a directory, "." and ".." left out; stops at the first non-zero answer. */
int raw_dir_each(const char *path, int (*fn)(const char *name, void *arg), void *arg);

/* CLOCK_MONOTONIC in nanoseconds. */
/* Of a thread of this process: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED. */
#define THREAD_CPU_CLOCK(tid) ((clockid_t)(~(tid) * 8 | 6))
uint64_t raw_now_ns(void);
