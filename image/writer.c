/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the image of the process that it runs in: makes the file, lets layout.c build the head, data.c
 * write the memory, then seals, syncs, or on any error removes the file and says why in words. Without libc
 * state.
 *
 * Invariants: at return the process has the mappings, threads and descriptors that it had before. The order
 * of writing is head, data, tail, sync, so that a file whose writing was cut off is found to be truncated.
 *
 * All writes are whole pages at page-aligned places, as O_DIRECT wants; the file is cut to its true length
 * at the end. It is not set to its length before: ext4 (6.18) writes into a hole below the file's end more
 * slowly than it extends the file, as it then converts unwritten extents.
 */
#include <errno.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/sys.h"
#include "image/internal.h"

#define MIB(bytes) ((bytes) >> 20)

static void say_directory(int dirfd, char *ret, size_t size)
{
	char link[40];
	long n;

	fm_format(link, sizeof(link), "/proc/thread-self/fd/%d", dirfd);
	n = dirfd == AT_FDCWD ? RAW2(SYS_getcwd, ret, size) : RAW4(SYS_readlinkat, AT_FDCWD, link, ret, size - 1);
	if (n < 0)
		n = 0;
	ret[(size_t)n < size ? (size_t)n : size - 1] = 0;
}

static void say_no_space(const struct image_file *f, const char *where, int error, char *ret, size_t size)
{
	unsigned long need = MIB(f->data_end + f->tail_size) + 1;

	if (error == -EDQUOT) {
		fm_format(ret, size, "the disk quota is used up in %s: the image needs up to %lu MiB", where, need);
	} else if (error == -EFBIG) {
		fm_format(ret, size, "the image would be larger (%lu MiB) than a file in %s may be (see ulimit -f)", need,
			  where);
	} else {
		fm_format(ret, size, "No space left on %s: the image needs up to %lu MiB, there were %lu MiB", where, need,
			  (unsigned long)MIB(f->space));
	}
}

static void say_error(const struct image_file *f, int dirfd, const char *name, int error, char *ret, size_t size)
{
	char where[256];

	say_directory(dirfd, where, sizeof(where));
	if (error == -ENOSPC || error == -EDQUOT || error == -EFBIG) {
		say_no_space(f, where, error, ret, size);
	} else if (f->error_step == IMAGE_STEP_MEMORY) {
		fm_format(ret, size, "memory at 0x%lx cannot be read (errno %d)", (unsigned long)f->error_address, -error);
	} else if (f->error_step == IMAGE_STEP_ASKED && error == -EINVAL) {
		fm_format(ret, size, "the run of memory at 0x%lx is not in order", (unsigned long)f->error_address);
	} else if (f->error_step == IMAGE_STEP_ASKED) {
		fm_format(ret, size, "writing %s/%s was given up (errno %d)", where, name, -error);
	} else if (error == -ENOMEM) {
		fm_format(ret, size, "no memory left to write the image %s/%s", where, name);
	} else {
		fm_format(ret, size, "cannot %s %s/%s (errno %d)", f->error_step == IMAGE_STEP_SYNC ? "sync" :
			  f->error_step == IMAGE_STEP_WRITE ? "write" : "create", where, name, -error);
	}
}

/* A write beyond RLIMIT_FSIZE would also raise SIGXFSZ: told before. */
static int check_limit(struct image_file *f)
{
	struct rlimit limit;

	if (RAW4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) == 0 &&
	    limit.rlim_cur < ALIGN_UP(f->data_end + f->tail_size, (uint64_t)FM_PAGE_SIZE))
		return image_fail(f, -EFBIG, IMAGE_STEP_CREATE, 0);
	return 0;
}

static int create(struct image_file *f, int dirfd, const char *name)
{
	struct statfs s;

	f->direct = 1;
	f->fd = raw_create(dirfd, name, O_WRONLY | O_DIRECT);
	if (f->fd == -EINVAL) {
		/* The file system may have made the file before it refused the flag. */
		RAW3(SYS_unlinkat, dirfd, name, 0);
		f->direct = 0;
		f->fd = raw_create(dirfd, name, O_WRONLY);
	}
	if (f->fd < 0)
		return image_fail(f, f->fd, IMAGE_STEP_CREATE, 0);
	if (RAW2(SYS_fstatfs, f->fd, &s) == 0)
		f->space = (uint64_t)s.f_bavail * (uint64_t)s.f_bsize;
	return 0;
}

static int write_padded(struct image_file *f, const char *data, uint64_t length, uint64_t offset)
{
	int r = image_pwrite(f, data, ALIGN_UP(length, (uint64_t)FM_PAGE_SIZE), offset);

	return r ? image_fail(f, r, IMAGE_STEP_WRITE, offset) : 0;
}

static int resize(struct image_file *f, uint64_t size)
{
	int r = (int)RAW2(SYS_ftruncate, f->fd, size);

	return r ? image_fail(f, r, IMAGE_STEP_WRITE, size) : 0;
}

static int write_all(struct image_file *f, struct image_written *ret)
{
	int r = write_padded(f, f->head, f->data_start, 0);

	if (!r)
		r = image_data_write(f);
	if (r)
		return r;
	image_seal(f, ret->digest);
	r = write_padded(f, f->tail, f->tail_size, f->data_end);
	if (!r)
		r = resize(f, f->data_end + f->tail_size);
	if (r)
		return r;
	r = fault_point(FAULT_IMAGE_BEFORE_SYNC);
	if (!r)
		r = (int)RAW1(SYS_fsync, f->fd);
	return r ? image_fail(f, r, IMAGE_STEP_SYNC, 0) : 0;
}

int image_write(int dirfd, const char *name, const struct image_dump *dump, struct image_written *ret, char *ret_text,
		size_t text_size)
{
	struct image_file f = { .dump = dump, .fd = -EBADF };
	struct image_written written = { 0 };
	int r;

	f.mem_fd = raw_open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC, 0);
	r = image_layout(&f);
	if (!r)
		r = check_limit(&f);
	if (!r)
		r = create(&f, dirfd, name);
	if (!r)
		r = write_all(&f, &written);
	if (r) {
		say_error(&f, dirfd, name, r, ret_text, text_size);
		if (f.fd >= 0)
			RAW3(SYS_unlinkat, dirfd, name, 0);
	} else {
		written.bytes = f.memory_written;
		written.file_size = f.data_end + f.tail_size;
		*ret = written;
	}
	if (f.fd >= 0)
		raw_close(f.fd);
	if (f.mem_fd >= 0)
		raw_close(f.mem_fd);
	image_layout_done(&f);
	return r;
}
