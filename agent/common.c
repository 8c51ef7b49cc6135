/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of a restart have learnt alike, and programs that are begun in the job afterwards (exec, posix_spawn, a launch that joins it) have to know: it lies
 * in files RUNDIR/JOB/NAME, each made by one process and mapped, or read, by the others, so that a host of a thousand ranks asks for it once and has it in memory once. Owns these files; the
 * coordinator of the next restart begins without them (coordinator/rundir.c).
 *
 *      RECREATE    | the first to make the file leads, and asks for what is needed    | the others have found it there
 *      PUBLISH     | writes it                                                        |
 *      RECONNECT   | all map it: it is whole, for the leader has said that PUBLISH is done, or the restart has failed
 *      ..          | nobody writes to it any more
 *
 * Whatever stands in one directory may be of several hosts: what is in the file is the whole job's.
 */
#include "agent/agent.h"

#include <errno.h>
#include <sys/mman.h>

#define PATH_SIZE (sizeof(agent.jobdir) + 16)

static void common_path(char to[PATH_SIZE], const char *name)
{
	fm_format(to, PATH_SIZE, "%s/%s", agent.jobdir, name);
}

static int unwritable(const char *path, int err)
{
	return fermata_fail(err, "%s cannot be written (errno %d): make room there, or set FERMATA_RUNDIR to another place", path, -err);
}

int fermata_common_lead(const char *name)
{
	char path[PATH_SIZE];
	int fd;

	common_path(path, name);
	fd = raw_create(AT_FDCWD, path, O_WRONLY);
	if (fd == -EEXIST)
		return 0;
	if (fd < 0)
		return unwritable(path, fd);
	raw_close(fd);
	return 1;
}

int fermata_common_write(const char *name, const void *data, size_t len)
{
	char path[PATH_SIZE];
	int fd, r;

	common_path(path, name);
	fd = raw_open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	r = fd < 0 ? fd : raw_pwrite_all(fd, data, len, 0);
	if (fd >= 0)
		raw_close(fd);
	return r < 0 ? unwritable(path, r) : 0;
}

/* -errno; -ENOENT: there is none. */
static int open_common(const char *name, char path[PATH_SIZE])
{
	common_path(path, name);
	return agent.active ? raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0) : -ENOENT;
}

long fermata_common_read(const char *name, uint64_t offset, void *buf, size_t size)
{
	char path[PATH_SIZE];
	int fd = open_common(name, path);
	long r;

	if (fd < 0)
		return 0;
	r = raw_pread(fd, buf, size, offset);
	raw_close(fd);
	return r > 0 ? r : 0;
}

static int map_file(int fd, const void **ret, size_t *ret_len)
{
	struct stat st;
	int r = (int)RAW2(SYS_fstat, fd, &st);

	if (r < 0 || !st.st_size)
		return r;
	*ret = fermata_device_map(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	*ret_len = (size_t)st.st_size;
	return *ret == MAP_FAILED ? -errno : 1;
}

int fermata_common_map(const char *name, const void **ret, size_t *ret_len)
{
	char path[PATH_SIZE];
	int fd = open_common(name, path), r = fd;

	if (fd == -ENOENT)
		return 0;
	if (fd >= 0)
		r = map_file(fd, ret, ret_len);
	if (fd >= 0)
		raw_close(fd);
	if (r < 0)
		log_error("%s, which has what the job's processes were told at its restart, cannot be read (errno %d)", path, -r);
	return r;
}
