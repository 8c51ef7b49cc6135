/* SPDX-License-Identifier: BSD-2-Clause */
/* Loops around raw system calls. Owns nothing; no state. */
#include "base/sys.h"

#include <sys/resource.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/log.h"

#define PF_EXITING 4u /* linux/sched.h; /proc tells it */

struct dirent_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* Who finds it wide already has another at it, whose the mode is to be narrowed: only what is found narrow is made so again. */
int raw_open_again(const char *path, int flags)
{
	struct stat st;
	int fd;

	for (int tries = 0; (fd = raw_open(path, flags, 0)) == -EACCES && tries < 1000; tries++) {
		if (RAW4(SYS_newfstatat, AT_FDCWD, path, &st, 0))
			break;
		if ((st.st_mode & 0600) == 0600) {
			RAW0(SYS_sched_yield);
			continue;
		}
		if (RAW2(SYS_chmod, path, (st.st_mode & 07777) | 0600))
			break;
		fd = raw_open(path, flags, 0);
		RAW2(SYS_chmod, path, st.st_mode & 07777);
		if (fd >= 0)
			break;
	}
	return fd;
}

int raw_read_all(int fd, void *buf, size_t n)
{
	char *p = buf;

	while (n) {
		long r = raw_read(fd, p, n);

		if (r == -EINTR)
			continue;
		if (r <= 0)
			return r ? (int)r : -ENODATA;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

int raw_write_all(int fd, const void *buf, size_t n)
{
	const char *p = buf;

	while (n) {
		long r = raw_write(fd, p, n);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return (int)r;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

int raw_pread_all(int fd, void *buf, size_t n, uint64_t off)
{
	char *p = buf;

	while (n) {
		long r = raw_pread(fd, p, n, off);

		if (r == -EINTR)
			continue;
		if (r <= 0)
			return r ? (int)r : -ENODATA;
		p += r;
		off += (uint64_t)r;
		n -= (size_t)r;
	}
	return 0;
}

int raw_pwrite_all(int fd, const void *buf, size_t n, uint64_t off)
{
	const char *p = buf;

	while (n) {
		long r = raw_pwrite(fd, p, n, off);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return (int)r;
		if (r == 0)
			return -EIO;
		p += r;
		off += (uint64_t)r;
		n -= (size_t)r;
	}
	return 0;
}

void raw_make_parents(const char *path)
{
	char folder[PATH_MAX];

	if (strlen(path) >= sizeof(folder))
		return;
	memcpy(folder, path, strlen(path) + 1);
	for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		if (!RAW2(SYS_mkdir, folder, 0700))
			RAW2(SYS_chmod, folder, 0700); /* whatever the umask is */
		*p = '/';
	}
}

long raw_read_file(const char *path, char *buf, size_t size)
{
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	size_t have = 0;
	long r;

	if (fd < 0)
		return fd;
	do {
		r = have < size ? raw_read(fd, buf + have, size - have) : -EFBIG;
		if (r > 0)
			have += (size_t)r;
	} while (r > 0 || r == -EINTR);
	raw_close(fd);
	if (r < 0)
		return r;
	if (have == size)
		return -EFBIG;
	buf[have] = 0;
	return (long)have;
}

dev_t raw_read_device(const char *path)
{
	unsigned int part[2] = { 0, 0 };
	char text[32];
	long n = raw_read_file(path, text, sizeof(text));
	int at = 0;

	for (long i = 0; i < n; i++) {
		if (text[i] == ':')
			at = 1;
		else if (text[i] >= '0' && text[i] <= '9')
			part[at] = part[at] * 10 + (unsigned int)(text[i] - '0');
	}
	return n > 0 ? makedev(part[0], part[1]) : 0;
}

char *raw_process_field(char *text, int number)
{
	char *p = strrchr(text, ')'); /* of its name, which may have others */
	int field = 2;

	while (p && *p && field < number)
		field += *p++ == ' ';
	return p && *p ? p : NULL;
}

char raw_process_state(int pid)
{
	char path[32], text[1024], *state;

	fm_format(path, sizeof(path), "/proc/%d/stat", pid);
	if (raw_read_file(path, text, sizeof(text)) < 0 || !(state = raw_process_field(text, 3)))
		return 0;
	return *state;
}

/* Of the thread with that stat: 1: it is on its way out; 0: it is through, or there is none; -1: it goes on. */
static int thread_leaves(const char *path)
{
	char text[1024], *state, *p;
	uint32_t flags = 0;

	if (raw_read_file(path, text, sizeof(text)) < 0 || !(state = raw_process_field(text, 3)) || !(p = raw_process_field(text, 9)))
		return 0;
	for (; *p >= '0' && *p <= '9'; p++)
		flags = flags * 10 + (uint32_t)(*p - '0');
	if (!(flags & PF_EXITING))
		return -1;
	return *state != 'Z' && *state != 'X';
}

struct threads_of {
	int pid;
	bool leaves;
};

static int thread_goes_on(const char *tid, void *arg)
{
	struct threads_of *t = arg;
	char path[64];
	int r;

	fm_format(path, sizeof(path), "/proc/%d/task/%s/stat", t->pid, tid);
	r = thread_leaves(path);
	t->leaves |= r > 0;
	return r < 0;
}

bool raw_process_is_ending(int pid)
{
	struct threads_of t = { .pid = pid };
	char path[32];

	fm_format(path, sizeof(path), "/proc/%d/stat", pid); /* its first thread's: nearly always that is all */
	if (thread_leaves(path) < 0)
		return false;
	fm_format(path, sizeof(path), "/proc/%d/task", pid);
	return raw_dir_each(path, thread_goes_on, &t) == 0 && t.leaves;
}

uint32_t raw_process_inner(int pid)
{
	char path[32], text[4096], *p;
	uint32_t inner = 0;

	fm_format(path, sizeof(path), "/proc/%d/status", pid);
	if (raw_read_file(path, text, sizeof(text)) < 0)
		return 0;
	p = strstr(text, "\nNSpid:");
	if (!p)
		return (uint32_t)pid;
	for (p += 7; *p == '\t' || (*p >= '0' && *p <= '9'); p++)
		inner = *p == '\t' ? 0 : inner * 10 + (uint32_t)(*p - '0');
	return inner;
}

int raw_dir_each(const char *path, int (*fn)(const char *name, void *arg), void *arg)
{
	int fd = raw_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buf[2048] __attribute__((aligned(8)));
	long n;
	int r = 0;

	if (fd < 0)
		return fd;
	while (!r && (n = RAW3(SYS_getdents64, fd, buf, sizeof(buf))) != 0) {
		if (n < 0) {
			r = (int)n;
			break;
		}
		for (long at = 0; at < n && !r; at += ((struct dirent_raw *)(buf + at))->reclen) {
			const char *name = ((struct dirent_raw *)(buf + at))->name;

			if (strcmp(name, ".") && strcmp(name, ".."))
				r = fn(name, arg);
		}
	}
	raw_close(fd);
	return r;
}

uint64_t raw_now_ns(void)
{
	struct timespec t;

	raw_clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void raw_descriptors_raise(void)
{
	uint64_t limit[2]; /* struct rlimit */

	if (RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, limit) < 0)
		return;
	limit[0] = limit[1];
	RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, limit, NULL);
}
