/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one table of interposed libc functions. Each name is defined by us in a wrap_*.c; real.NAME is what the program would have
 * got without us. Until the table is resolved (another library's constructor may run before ours) a wrapper resolves it itself.
 */
#pragma once

#include <aio.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WRAP_TABLE(X)                                                                                              \
	/* signals: ours stays hidden and open (wrap_signal.c) */                                                  \
	X(int, sigaltstack, (const stack_t *, stack_t *))                                                          \
	X(int, sigaction, (int, const struct sigaction *, struct sigaction *))                                     \
	X(sighandler_t, signal, (int, sighandler_t))                                                               \
	X(int, sigprocmask, (int, const sigset_t *, sigset_t *))                                                   \
	X(int, pthread_sigmask, (int, const sigset_t *, sigset_t *))                                               \
	X(int, sigwait, (const sigset_t *, int *))                                                                 \
	X(int, sigwaitinfo, (const sigset_t *, siginfo_t *))                                                       \
	X(int, sigtimedwait, (const sigset_t *, siginfo_t *, const struct timespec *))                             \
	X(int, signalfd, (int, const sigset_t *, int))                                                             \
	/* calls that open signals for their time (wrap_suspend.c) */                                              \
	X(int, sigsuspend, (const sigset_t *))                                                                     \
	X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))                        \
	X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))            \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))                               \
	X(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))          \
	/* calls with a relative time-out (wrap_wait.c) */                                                         \
	X(int, poll, (struct pollfd *, nfds_t, int))                                                               \
	X(int, epoll_wait, (int, struct epoll_event *, int, int))                                                  \
	/* what has been used (wrap_spent.c) */                                                                    \
	X(int, clock_gettime, (clockid_t, struct timespec *))                                                      \
	X(clock_t, clock, (void))                                                                                  \
	X(int, getrusage, (__rusage_who_t, struct rusage *))                                                       \
	X(clock_t, times, (struct tms *))                                                                          \
	X(int, nanosleep, (const struct timespec *, struct timespec *))                                            \
	X(int, clock_nanosleep, (clockid_t, int, const struct timespec *, struct timespec *))                      \
	X(int, thrd_sleep, (const struct timespec *, struct timespec *))                                           \
	X(int, usleep, (useconds_t))                                                                               \
	X(int, aio_suspend, (const struct aiocb *const[], int, const struct timespec *))                           \
	X(int, semtimedop, (int, struct sembuf *, size_t, const struct timespec *))                                \
	X(long, syscall, (long, ...))                                                                              \
	/* descriptors of ours cannot be closed, the device's are noted (wrap_fd.c) */                             \
	X(ssize_t, write, (int, const void *, size_t))                                                             \
	/* calls that a signal would cut short (wrap_whole.c) */                                                   \
	X(ssize_t, read, (int, void *, size_t))                                                                    \
	X(ssize_t, writev, (int, const struct iovec *, int))                                                       \
	X(ssize_t, send, (int, const void *, size_t, int))                                                         \
	X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))                   \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int))                                                     \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned int, int))                                               \
	X(ssize_t, recv, (int, void *, size_t, int))                                                               \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *restrict, socklen_t *restrict))           \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                                           \
	X(ssize_t, sendfile, (int, int, off_t *, size_t))                                                          \
	X(ssize_t, sendfile64, (int, int, off64_t *, size_t))                                                      \
	X(ssize_t, getrandom, (void *, size_t, unsigned int))                                                      \
	X(int, fstat, (int, struct stat *))                                                                        \
	X(int, fstat64, (int, struct stat64 *))                                                                    \
	X(int, stat, (const char *, struct stat *))                                                                \
	X(int, stat64, (const char *, struct stat64 *))                                                            \
	X(int, lstat, (const char *, struct stat *))                                                               \
	X(int, lstat64, (const char *, struct stat64 *))                                                           \
	X(int, fstatat, (int, const char *, struct stat *, int))                                                   \
	X(int, fstatat64, (int, const char *, struct stat64 *, int))                                               \
	X(int, statx, (int, const char *, int, unsigned int, struct statx *))                                      \
	X(int, __fxstat, (int, int, struct stat *))                                                                \
	X(int, __fxstat64, (int, int, struct stat64 *))                                                            \
	X(int, __xstat, (int, const char *, struct stat *))                                                        \
	X(int, __xstat64, (int, const char *, struct stat64 *))                                                    \
	X(int, __lxstat, (int, const char *, struct stat *))                                                       \
	X(int, __lxstat64, (int, const char *, struct stat64 *))                                                   \
	X(int, __fxstatat, (int, int, const char *, struct stat *, int))                                           \
	X(int, __fxstatat64, (int, int, const char *, struct stat64 *, int))                                       \
	X(int, access, (const char *, int))                                                                        \
	X(int, close, (int))                                                                                       \
	X(int, close_range, (unsigned int, unsigned int, int))                                                     \
	X(void, closefrom, (int))                                                                                  \
	X(int, dup2, (int, int))                                                                                   \
	X(int, dup3, (int, int, int))                                                                              \
	X(int, open, (const char *, int, ...))                                                                     \
	X(int, open64, (const char *, int, ...))                                                                   \
	X(int, openat, (int, const char *, int, ...))                                                              \
	X(int, openat64, (int, const char *, int, ...))                                                            \
	X(FILE *, fopen, (const char *, const char *))                                                             \
	X(FILE *, fopen64, (const char *, const char *))                                                           \
	X(int, memfd_create, (const char *, unsigned int))                                                         \
	X(int, eventfd, (unsigned int, int))                                                                       \
	X(int, socket, (int, int, int))                                                                            \
	X(int, socketpair, (int, int, int, int *))                                                                 \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                                \
	X(int, bind, (int, const struct sockaddr *, socklen_t))                                                    \
	X(int, listen, (int, int))                                                                                 \
	X(int, setsockopt, (int, int, int, const void *, socklen_t))                                               \
	X(int, getsockopt, (int, int, int, void *restrict, socklen_t *restrict))                                   \
	X(int, pipe2, (int *, int))                                                                                \
	X(int, epoll_create1, (int))                                                                               \
	X(int, timerfd_create, (int, int))                                                                         \
	X(void *, mmap, (void *, size_t, int, int, int, off_t))                                                    \
	X(void *, mmap64, (void *, size_t, int, int, int, off64_t))                                                \
	X(int, munmap, (void *, size_t))                                                                           \
	X(int, remap_file_pages, (void *, size_t, int, size_t, int))                                               \
	X(int, madvise, (void *, size_t, int))                                                                     \
	/* what the kernel does not tell of a timer (wrap_timer.c) */                                              \
	X(int, timer_create, (clockid_t, struct sigevent *, timer_t *))                                            \
	X(int, timer_settime, (timer_t, int, const struct itimerspec *, struct itimerspec *))                      \
	X(int, timer_delete, (timer_t))                                                                            \
	/* paths of watches (wrap_inotify.c) */                                                                    \
	X(int, inotify_init1, (int))                                                                               \
	X(int, inotify_add_watch, (int, const char *, uint32_t))                                                   \
	X(int, inotify_rm_watch, (int, int))                                                                       \
	/* System V semaphores and message queues (wrap_sysv.c, wrap_semaphore.c) */                               \
	X(int, semget, (key_t, int, int))                                                                          \
	X(int, msgget, (key_t, int))                                                                               \
	X(int, semctl, (int, int, int, ...))                                                                       \
	X(int, semop, (int, struct sembuf *, size_t))                                                              \
	/* POSIX message queues (wrap_mqueue.c) */                                                                 \
	X(mqd_t, mq_open, (const char *, int, ...))                                                                \
	X(int, mq_unlink, (const char *))                                                                          \
	X(int, mq_notify, (mqd_t, const struct sigevent *))                                                        \
	/* filters of system calls (begun.c) */                                                                   \
	X(int, prctl, (int, ...))                                                                                  \
	/* the device's threads (device_thread.c, device_pthread.c) */                                             \
	X(int, clone, (int (*)(void *), void *, int, void *, ...))                                                 \
	X(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))                   \
	X(int, pthread_join, (pthread_t, void **))                                                                 \
	X(int, pthread_detach, (pthread_t))                                                                        \
	X(void, pthread_exit, (void *))                                                                            \
	/* out of a handler (region.c) */                                                                           \
	X(void, longjmp, (struct __jmp_buf_tag *, int))                                                            \
	X(void, _longjmp, (struct __jmp_buf_tag *, int))                                                           \
	X(void, siglongjmp, (struct __jmp_buf_tag *, int))                                                         \
	X(void, __longjmp_chk, (struct __jmp_buf_tag *, int))                                                      \
	/* a debugger and what it debugs (wrap_ptrace.c) */                                                         \
	X(long, ptrace, (enum __ptrace_request, ...))                                                              \
	/* how children end (wrap_child.c) */                                                                      \
	X(pid_t, wait, (int *))                                                                                    \
	X(pid_t, waitpid, (pid_t, int *, int))                                                                     \
	X(pid_t, wait3, (int *, int, struct rusage *))                                                             \
	X(pid_t, wait4, (pid_t, int *, int, struct rusage *))                                                      \
	X(int, waitid, (idtype_t, id_t, siginfo_t *, int))                                                         \
	X(int, kill, (pid_t, int))                                                                                 \
	X(int, killpg, (pid_t, int))                                                                               \
	X(int, sigqueue, (pid_t, int, const union sigval))                                                         \
	/* the connection lives through an exec (wrap_exec.c) */                                                   \
	X(int, execve, (const char *, char *const *, char *const *))                                               \
	X(int, execvpe, (const char *, char *const *, char *const *))                                              \
	X(int, fexecve, (int, char *const *, char *const *))                                                       \
	X(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, \
			     char *const *, char *const *))                                                        \
	X(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, \
			      char *const *, char *const *))

#define WRAP_POINTER(ret, name, args) ret(*name) args;
struct wrap_real {
	WRAP_TABLE(WRAP_POINTER)
};
#undef WRAP_POINTER
extern struct wrap_real real;

void wrap_resolve(void);
void wrap_signal_stacks(void); /* wrap_signal.c: once our handler is there */

/* First line of each wrapper. */
#define WRAP_READY(name)            \
	do {                        \
		if (unlikely(!real.name)) \
			wrap_resolve();   \
	} while (0)
