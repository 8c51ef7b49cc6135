/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As refuse.c, with objects of the kernel that are not supported by what they are: whoever holds one has its descriptor named with its kind, and
 * goes on with it. The argument says which. A kernel that does not give one skips.
 */
#include "feature.h"

#include <asm/ldt.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static const char *kind = "";
static const char *what; /* that the refusal has to say, where it is not "fd N (LINK) is" */
static struct io_uring_params ring;

/* Of a call that a kernel or a container may refuse. */
static int given(long fd, const char *what)
{
	if (fd < 0)
		feature_skip(what);
	kind = what;
	return (int)fd;
}

/* As a program that is linked with liburing, or libaio, statically. */
static long by_number(long nr, long n, void *p)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(n), "S"(p) : "rcx", "r11", "memory");
	return r;
}

static int make_ring(void)
{
	int fd = given(by_number(SYS_io_uring_setup, 8, &ring), "io_uring");

	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING) != MAP_FAILED);
	return fd;
}

static int make_userfault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = given(syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC | O_NONBLOCK), "userfaultfd");

	CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
	return fd;
}

static int make_counter(void)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(a), .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1,
				     .exclude_hv = 1 };

	return given(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0), "perf_event");
}

static int make_fanotify(void)
{
	return given(fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, 0), "fanotify");
}

/* Of a process that is not of the job: the one that has begun it. */
static int make_foreign(void)
{
	return given(syscall(SYS_pidfd_open, getppid(), 0), "pidfd");
}

/* Mapped, which the seal allows for reading only. */
static int make_sealed(void)
{
	int fd = given(memfd_create("sealed", MFD_ALLOW_SEALING), "sealed");

	CHECK(ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		feature_skip("this kernel maps nothing that is sealed against writing"); /* before 6.7 */
	return fd;
}

/* It has no descriptor: that of the file it reads. */
static int make_context(void)
{
	static aio_context_t context;

	given(by_number(SYS_io_setup, 8, &context), "aio");
	what = "/[aio] (deleted) is a context";
	kind = "null";
	return open("/dev/null", O_RDONLY);
}

static int make_zerocopy(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	CHECK(fd >= 0 && syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof(yes)) == 0);
	what = "is a socket that sends without a copy";
	return fd;
}

static int make_secret(void)
{
	int fd = given(syscall(447 /* SYS_memfd_secret */, 0), "secret");

	CHECK(ftruncate(fd, 4096) == 0 && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	what = "/secretmem (deleted) is secret memory";
	return fd;
}

/* It has no descriptor either. */
static int make_segment(void)
{
	struct user_desc d = { .entry_number = 1, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1, .useable = 1 };

	given(syscall(SYS_modify_ldt, 1, &d, sizeof(d)), "segment");
	what = "has segments of its own (modify_ldt)";
	kind = "null";
	return open("/dev/null", O_RDONLY);
}

/* As haproxy does. Root's processes are not counted. */
static int make_no_threads(void)
{
	const struct rlimit none = { 0, 0 };

	CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
	if (!getuid())
		feature_skip("threads of root");
	what = "may have no more threads";
	kind = "null";
	return open("/dev/null", O_RDONLY);
}

/* The second half of what it shares shows the first one. */
static int make_rearranged(void)
{
	char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	given(remap_file_pages(at + 4096, 4096, 0, 0, 0), "rearranged");
	what = "has rearranged memory that it shares";
	kind = "null";
	return open("/dev/null", O_RDONLY);
}

/* A child's, whose path is longer than an image has room for. */
static int make_deep(void)
{
	char name[200];
	int ends[2];

	memset(name, 'd', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0);
	if (fork() == 0) {
		CHECK(close(ends[1]) == 0 && read(ends[0], name, 1) == 0);
		_exit(0);
	}
	CHECK(close(ends[0]) == 0 && chdir("../../..") == 0);
	what = "its working directory (";
	kind = "pipe";
	return ends[1];
}

static const struct {
	const char *name;
	int (*make)(void);
} objects[] = {
	{ "io_uring", make_ring }, { "userfaultfd", make_userfault }, { "perf", make_counter }, { "fanotify", make_fanotify },
	{ "pidfd_foreign", make_foreign }, { "sealed_map", make_sealed }, { "aio", make_context }, { "secret", make_secret }, { "segment", make_segment }, { "zerocopy", make_zerocopy },
	{ "no_threads", make_no_threads }, { "rearranged", make_rearranged }, { "deep", make_deep },
};

int main(int argc, char **argv)
{
	FILE *f = fopen("refused", "w");
	char link[64] = "", path[40];
	int fd = -1;

	CHECK(argc == 2 && f);
	for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++)
		if (strcmp(argv[1], objects[i].name) == 0)
			fd = objects[i].make();
	CHECK(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(readlink(path, link, sizeof(link) - 1) > 0 && strstr(link, kind));
	CHECK((what ? fprintf(f, "%s", what) : fprintf(f, "fd %d (%s) is ", fd, link)) > 0 && fclose(f) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(fcntl(fd, F_GETFD) >= 0);
	} while (feature_step());
	return 0;
}
