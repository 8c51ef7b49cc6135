/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is in a pipe: bytes, or packets (O_DIRECT, pipe2(2)), of which each read gives one. It is read by tee(2) into a scratch pipe: it stays where it is, a checkpoint that fails has touched nothing.
 *
 * The kernel does not tell which it is, nor does the writer's flag, as the writer may be gone. But a read ends with the first packet that it meets, and drops what it leaves of it. So a byte is put
 * behind the copy: what comes in one read together with that one is all bytes. Else it ends with a packet, and is one if a read of a single byte, of another copy, leaves no more than this one did.
 * Bytes and packets in one pipe, whose bounds nobody could tell, are refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "base/macro.h"
#include "base/sys.h"
#include "plugins/pipe/pipe.h"

struct copy {
	int ends[2];
	size_t length;
};

static void copy_close(const struct copy *c)
{
	raw_close(c->ends[0]);
	raw_close(c->ends[1]);
}

/* Of the first @n bytes of the pipe whose read end is @from, with room for one more. 0 or -errno. */
static int copy_open(struct copy *c, int from, size_t n, long capacity)
{
	int r = (int)RAW2(SYS_pipe2, c->ends, O_CLOEXEC | O_NONBLOCK);
	long got;

	if (r < 0)
		return r;
	c->length = n;
	if (raw_fcntl(c->ends[1], F_SETPIPE_SZ, 2 * capacity) < 0) /* more than the user may have: there is room unless each of its pages is in use */
		raw_fcntl(c->ends[1], F_SETPIPE_SZ, capacity);     /* nor may he have so much: then it has a page or two, which may do */
	got = RAW4(SYS_tee, from, c->ends[1], n, 2 /* SPLICE_F_NONBLOCK */);
	r = got < 0 ? (int)got : (size_t)got < n ? -ENOSPC : 0;
	if (r < 0)
		copy_close(c);
	return r;
}

/* How many bytes of @of are left when a read has taken one, or -errno. */
static int left_after_one(const struct copy *of, long capacity)
{
	struct copy c;
	int r = copy_open(&c, of->ends[0], of->length, capacity), left = 0;
	char byte;

	if (r)
		return r;
	r = (int)raw_read(c.ends[0], &byte, 1);
	if (r >= 0)
		r = raw_ioctl(c.ends[0], FIONREAD, &left);
	copy_close(&c);
	return r < 0 ? r : left;
}

/* Reads @c, of @n bytes and the one behind, into @content. How many packets these are, their sizes in @sizes; 0: none; or -errno. */
static int split(struct copy *c, size_t n, long capacity, char *content, uint32_t *sizes)
{
	int count = 0;

	for (size_t at = 0; at < n; count++) {
		int left = left_after_one(c, capacity);
		long got = left < 0 ? left : raw_read(c->ends[0], content + at, c->length);

		if (got <= 0 || count == capacity / (long)FM_PAGE_SIZE)
			return got < 0 ? (int)got : -EIO;
		if ((size_t)(left + got) != c->length)
			return !at && (size_t)got == c->length ? 0 : -EOPNOTSUPP;
		sizes[count] = (uint32_t)got;
		at += (size_t)got;
		c->length -= (size_t)got;
	}
	return count;
}

static int read_all(int from, size_t n, long capacity, char *content, uint32_t *sizes)
{
	struct copy c;
	int r = copy_open(&c, from, n, capacity);

	if (r)
		return r;
	c.length += raw_write(c.ends[1], "", 1) == 1;
	r = split(&c, n, capacity, content, sizes);
	copy_close(&c);
	return r;
}

int pipe_content_read(int from, long capacity, struct pipe_content *ret)
{
	int n = 0, r = raw_ioctl(from, FIONREAD, &n);

	*ret = (struct pipe_content){ .length = (uint32_t)n };
	if (r < 0 || !n)
		return r;
	ret->bytes = fermata_alloc((size_t)n + 1);
	ret->sizes = fermata_alloc((size_t)capacity / FM_PAGE_SIZE * sizeof(uint32_t)); /* a packet has a page of its own */
	r = ret->bytes && ret->sizes ? read_all(from, (size_t)n, capacity, ret->bytes, ret->sizes) : -ENOMEM;
	ret->packets = r > 0 ? (uint32_t)r : 0;
	return r < 0 ? r : 0;
}

void pipe_content_free(const struct pipe_content *c)
{
	fermata_free(c->bytes);
	fermata_free(c->sizes);
}

static int write_packets(int to, const char *content, const uint32_t *sizes, uint32_t count)
{
	long n = raw_fcntl(to, F_SETFL, O_NONBLOCK | O_DIRECT);

	for (uint32_t i = 0; i < count && n >= 0; i++) {
		n = raw_write(to, content, sizes[i]);
		if (n >= 0 && n != (long)sizes[i])
			n = -ENOSPC;
		content += sizes[i];
	}
	return n < 0 ? (int)n : 0;
}

int pipe_content_write(int to, const struct pipe_record *r)
{
	const char *content = (const char *)(r + 1) + (size_t)r->packets * sizeof(uint32_t);
	long n;

	if (r->packets)
		return write_packets(to, content, (const uint32_t *)(r + 1), r->packets);
	n = raw_write(to, content, r->length);
	return n == (long)r->length ? 0 : n < 0 ? (int)n : -ENOSPC;
}
