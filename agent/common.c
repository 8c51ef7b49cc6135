/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all processes of a restart have learnt alike, and programs that are begun in the job afterwards (exec, posix_spawn, a launch that joins it) have to know: it lies
 * in RUNDIR/JOB/names, made by one process and mapped by the others, so that a host of a thousand ranks asks for it once and has it in memory once. Owns that file; the
 * coordinator of the next restart begins without it.
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

static void common_path(char *to, size_t size)
{
	fm_format(to, size, "%s/names", agent.jobdir);
}

static int unwritable(const char *path, int err)
{
	return fermata_fail(err, "%s cannot be written (errno %d): make room there, or set FERMATA_RUNDIR to another place", path, -err);
}

int fermata_common_lead(void)
{
	char path[sizeof(agent.jobdir) + 8];
	int fd;

	common_path(path, sizeof(path));
	fd = raw_create(AT_FDCWD, path, O_WRONLY);
	if (fd == -EEXIST)
		return 0;
	if (fd < 0)
		return unwritable(path, fd);
	raw_close(fd);
	return 1;
}

int fermata_common_write(const void *data, size_t len)
{
	char path[sizeof(agent.jobdir) + 8];
	int fd, r;

	common_path(path, sizeof(path));
	fd = raw_open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	r = fd < 0 ? fd : raw_pwrite_all(fd, data, len, 0);
	if (fd >= 0)
		raw_close(fd);
	return r < 0 ? unwritable(path, r) : 0;
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

int fermata_common_map(const void **ret, size_t *ret_len)
{
	char path[sizeof(agent.jobdir) + 8];
	int fd, r;

	if (!agent.active)
		return 0;
	common_path(path, sizeof(path));
	fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd == -ENOENT)
		return 0;
	r = fd < 0 ? fd : map_file(fd, ret, ret_len);
	if (fd >= 0)
		raw_close(fd);
	if (r < 0)
		log_error("%s, which has the names that the job's processes were told before its restart, cannot be read (errno %d)", path, -r);
	return r;
}
