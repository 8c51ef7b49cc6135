/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A deleted file that is mapped shared (file_deleted.c): what nobody maps of it. The maker's record carries that: of each stretch that holds data, struct file_extent and the bytes. Holes stay holes. No state.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/sys.h"
#include "plugins/file/file.h"

#define CHUNK (1u << 20)

struct saving {
	const struct fermata_desc *d;
	int fd;
	struct fermata_sink *sink; /* NULL: only counted */
	char *chunk;
	uint64_t bytes;
};

static int save_extent(struct saving *s, uint64_t start, uint64_t end)
{
	struct file_extent e = { start, end - start };
	int r = 0;

	s->bytes += sizeof(e) + e.length;
	if (s->sink)
		r = fermata_sink_write(s->sink, &e, sizeof(e));
	while (s->sink && !r && start < end) {
		size_t n = end - start < CHUNK ? end - start : CHUNK;

		r = raw_pread_all(s->fd, s->chunk, n, start);
		r = r < 0 ? r : fermata_sink_write(s->sink, s->chunk, n);
		start += n;
	}
	return r;
}

/* Of what nobody maps, the stretches with data. */
static int save_between(struct saving *s, uint64_t start, uint64_t end)
{
	int r = 0;

	while (!r && start < end) {
		long data = raw_lseek(s->fd, (int64_t)start, SEEK_DATA), hole;

		if (data == -ENXIO || (data >= 0 && (uint64_t)data >= end))
			return 0;
		hole = data < 0 ? data : raw_lseek(s->fd, data, SEEK_HOLE);
		if (hole < 0)
			return (int)hole;
		r = save_extent(s, (uint64_t)data, (uint64_t)hole < end ? (uint64_t)hole : end);
		start = (uint64_t)hole;
	}
	return r;
}

static int save_all(struct saving *s)
{
	uint64_t start = 0, end;
	int r = 0;

	for (; !r && fermata_next_unmapped(&s->d->st, &start, &end); start = end)
		r = save_between(s, start, end);
	return r;
}

int file_part_save(const struct fermata_desc *d, struct fermata_sink *sink, uint64_t *ret_bytes)
{
	struct saving s = { .d = d, .sink = sink, .fd = file_open_own(d->fd, O_RDONLY), .chunk = sink ? fermata_alloc(CHUNK) : NULL };
	int r = s.fd < 0 ? s.fd : sink && !s.chunk ? -ENOMEM : save_all(&s);

	if (s.fd >= 0)
		raw_close(s.fd);
	fermata_free(s.chunk);
	*ret_bytes = s.bytes;
	return r < 0 ? fermata_fail(r, "fd %d: the part of %s that nobody maps cannot be read (errno %d)", d->fd, d->link, -r) : 0;
}

/* What is written into a file of huge pages is not taken. */
bool file_part_is_huge(int fd)
{
	struct statfs fs;

	return RAW2(SYS_fstatfs, fd, &fs) < 0 || fs.f_type == HUGETLBFS_MAGIC;
}

int file_part_restore(int fd, const char *at, uint64_t left)
{
	struct file_extent e;
	int r = 0;

	while (!r && left) {
		if (left < sizeof(e))
			return -EBADMSG;
		memcpy(&e, at, sizeof(e));
		if (left - sizeof(e) < e.length)
			return -EBADMSG;
		r = raw_pwrite_all(fd, at + sizeof(e), e.length, e.offset);
		at += sizeof(e) + e.length;
		left -= sizeof(e) + e.length;
	}
	return r;
}
