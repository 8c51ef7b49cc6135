/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that takes io_uring and libaio where they are to be had, by number or by their libraries, and does without where the kernel says that they are not: it writes to a file, and reads
 * back what it wrote.
 */
#include "feature.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

static struct io_uring_params params;
static char ring[4096]; /* a struct io_uring, of any liburing */
static void *contexts[2];

/* As a program that is linked with @library, if that is here, calls @name of it. */
static void call(const char *library, const char *name, void *made)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	int (*make)(unsigned int, void *, unsigned int), r;

	*(void **)&make = dlsym(RTLD_DEFAULT, name);
	if (!handle || !make)
		return;
	r = make(8, made, 0);
	CHECK(!r || r == -ENOSYS || r == -EPERM);
}

static void check_number(long r)
{
	CHECK(r >= 0 || errno == ENOSYS || errno == EPERM);
}

int main(void)
{
	int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t n, step = 0;

	CHECK(fd >= 0);
	check_number(syscall(SYS_io_uring_setup, 8, &params));
	check_number(syscall(SYS_io_setup, 8, &contexts[0]));
	call("liburing.so.2", "io_uring_queue_init", ring);
	call("libaio.so.1", "io_setup", &contexts[1]);
	feature_ready();
	do {
		step++;
		CHECK(pwrite(fd, &step, 8, 0) == 8 && pread(fd, &n, 8, 0) == 8 && n == step);
		feature_work();
	} while (feature_step());
	return 0;
}
