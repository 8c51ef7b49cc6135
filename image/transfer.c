/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the writing threads move bytes with: memory that may not be readable into a buffer, a buffer into the file; and the first error of
 * all of them. Without libc state.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "base/sys.h"
#include "image/internal.h"

int image_fail(struct image_file *f, int error, enum image_step step, uint64_t address)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&f->error, &none, error)) {
		f->error_step = step;
		f->error_address = address;
	}
	return error;
}

int image_memory_copy(const struct image_file *f, void *to, uint64_t address, uint64_t length, uint64_t *ret_done)
{
	uint64_t done = 0;
	long r = 1;

	while (done < length && r > 0) {
		if (f->mem_fd >= 0) {
			r = raw_pread(f->mem_fd, (char *)to + done, length - done, address + done);
		} else {
			struct iovec local = { (char *)to + done, length - done };
			struct iovec remote = { (void *)(uintptr_t)(address + done), length - done };

			r = RAW6(SYS_process_vm_readv, raw_gettid(), &local, 1, &remote, 1, 0);
		}
		if (r == -EINTR)
			r = 1;
		else if (r > 0)
			done += (uint64_t)r;
	}
	*ret_done = done;
	return done == length ? 0 : r < 0 ? (int)r : -EFAULT;
}

int image_pwrite(struct image_file *f, const void *data, uint64_t length, uint64_t offset)
{
	const char *at = data;

	while (length) {
		long r = raw_pwrite(f->fd, at, length, offset);

		if (r == -EINTR)
			continue;
		if (r == -EINVAL && f->direct) { /* takes the flag, but not this write */
			raw_fcntl(f->fd, F_SETFL, O_WRONLY);
			f->direct = 0;
			continue;
		}
		if (r <= 0)
			return r ? (int)r : -EIO;
		at += r;
		offset += (uint64_t)r;
		length -= (uint64_t)r;
	}
	return 0;
}

typedef uint64_t vector __attribute__((vector_size(16), aligned(16), may_alias));

static bool page_is_zero(const char *page)
{
	const vector *v = (const vector *)page;

	__builtin_prefetch(page + 8 * FM_PAGE_SIZE); /* most pages end the loop at once, and a new page is a cache miss */
	for (size_t i = 0; i < FM_PAGE_SIZE / sizeof(*v); i += 4) {
		vector any = v[i] | v[i + 1] | v[i + 2] | v[i + 3];

		if (any[0] | any[1])
			return false;
	}
	return true;
}

uint64_t image_zero_length(const char *data, uint64_t length)
{
	uint64_t n = 0;

	while (n < length && page_is_zero(data + n))
		n += FM_PAGE_SIZE;
	return n;
}
