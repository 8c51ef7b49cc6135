/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the job's processes share, by mappings or descriptors: each object is made once, before the processes, empty. Owns struct restart's list of them. */
#include "cli/restart.h"
#include "cli/restart_files.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/shared_name.h"

struct restart_shared *restart_shared_find(const struct restart *r, const struct image_mapping *m)
{
	for (size_t i = 0; i < r->shared_count; i++)
		if (r->shared[i].dev == m->dev && r->shared[i].ino == m->ino)
			return &r->shared[i];
	return NULL;
}

static int note_shared(struct restart *r, const struct image *image, const struct image_mapping *m)
{
	struct restart_shared *s = restart_shared_find(r, m), *more;
	uint64_t size = m->offset + (m->end - m->start);

	if (!s) {
		more = reallocarray(r->shared, r->shared_count + 1, sizeof(*more));
		if (!more)
			return -ENOMEM;
		r->shared = more;
		s = &more[r->shared_count++];
		*s = (struct restart_shared){ .dev = m->dev, .ino = m->ino, .fd = -1 };
	}
	if (m->flags & IMAGE_MAPPING_NAMED) {
		s->path = image_mapping_path(image, m);
		s->mode = m->flags >> IMAGE_MAPPING_MODE_SHIFT;
		size = m->file_size;
	}
	if (s->size < size)
		s->size = size;
	s->page_shift = image_mapping_page_shift(m);
	return 0;
}

static int create_memory(const struct restart_shared *s, uint32_t page_shift)
{
	uint32_t flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	char name[64];

	snprintf(name, sizeof(name), SHARED_NAME, (unsigned long)s->dev, (unsigned long)s->ino);
	return memfd_create(name, page_shift ? flags | MFD_HUGETLB | page_shift << MAP_HUGE_SHIFT : flags); /* held by the capsule's init, too */
}

/* Once it was mapped, its pages are reserved. */
static int create_huge(const struct restart_shared *s)
{
	int fd = create_memory(s, s->page_shift);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)s->size) == 0)
		at = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED) {
		munmap(at, s->size);
		return fd;
	}
	warn("shared memory of %llu bytes comes back in small pages, without as many of huge ones (/proc/sys/vm/nr_hugepages)", (unsigned long long)s->size);
	if (fd >= 0)
		close(fd);
	return create_memory(s, 0);
}

/*
 * A file of the name that is there already is left over from the job, or another run's: it keeps what it has, for those who have it
 * open, and loses its name. Its directory may be missing on another machine (that of an MPI's session, in a /tmp that is memory).
 */
static int create_named(const struct restart_shared *s)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s.fermata-%d", s->path, (int)getpid()) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == ENOENT && restart_files_make_directories(path) == 0)
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && (fchmod(fd, s->mode) < 0 || rename(path, s->path) < 0)) {
		close(fd);
		unlink(path);
		fd = -1;
	}
	return fd;
}

/* A file's huge pages are missing now, and named, and not in the restorer. 0 or -1. */
static int reserve(const struct restart_shared *s)
{
	struct statfs fs;

	if (!s->path || fstatfs(s->fd, &fs) < 0 || fs.f_type != HUGETLBFS_MAGIC || fallocate(s->fd, 0, 0, (off_t)s->size) == 0)
		return 0;
	warn("%s needs %llu bytes of huge pages (/proc/sys/vm/nr_hugepages)", s->path, (unsigned long long)s->size);
	return -1;
}

int restart_shared_create(struct restart *r)
{
	for (size_t p = 0; p < r->count; p++) {
		size_t n;
		const struct image_mapping *m = image_get_mappings(r->processes[p].image, &n);

		for (size_t i = 0; i < n; i++)
			if (m[i].kind == IMAGE_MAPPING_SHARED_ANON && note_shared(r, r->processes[p].image, &m[i]) < 0) {
				warnx("out of memory");
				return CLI_CANNOT;
			}
	}
	for (size_t i = 0; i < r->shared_count; i++) {
		struct restart_shared *s = &r->shared[i];

		s->fd = s->path ? create_named(s) : s->page_shift ? create_huge(s) : create_memory(s, 0);
		if (s->fd < 0 || ftruncate(s->fd, (off_t)s->size) < 0) {
			warn("shared memory %s of %llu bytes", s->path ? s->path : "without a name", (unsigned long long)s->size);
			return CLI_CANNOT;
		}
		if (reserve(s) < 0)
			return CLI_CANNOT;
	}
	return 0;
}
