/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file /dev/infiniband/rdma_cm where the devices are softrdma's or the kernel's of RoCE: librdmacm's system calls on it, which the agent's wrappers bring here, go
 * to the library's softrdma_cm_* functions. And, where softrdma is the device, the files that programs look for where one is. With other devices all of that is the
 * kernel's, and nothing here is taken.
 *
 * What a channel holds (ids, ports, connections) is saved by verbs_cm_state.c. Owns the device number that the program was told, which librdmacm compares with the one that it has
 * read once in sysfs, in this life or before: so it is looked at as the program begins, and stays.
 */
#include <errno.h>
#include <poll.h>

#include "plugins/verbs/verbs_cm.h"

#define NOT_A_CHANNEL -ENOTTY /* as the library says it */

static dev_t number; /* 0: the kernel has no such file, and the program has not asked yet */

int verbs_cm_init(void)
{
	number = raw_read_device("/sys/class/misc/rdma_cm/dev");
	return 0;
}

static long mine(long r)
{
	return r == NOT_A_CHANNEL ? FERMATA_NOT_MINE : r;
}

int verbs_cm_open(const char *path, int flags)
{
	int r = NOT_A_CHANNEL;

	if (strcmp(path, "/dev/infiniband/rdma_cm") != 0 || verbs_backend_load())
		return FERMATA_NOT_MINE;
	fermata_device_enter();
	verbs_cm_hosts_tell();
	if (verbs_backend.softrdma_cm_open)
		r = verbs_backend.softrdma_cm_open(path, flags);
	fermata_device_leave();
	return (int)mine(r);
}

/* A checkpoint sees names of one life only: they are changed within the call. */
static long command(int fd, const void *data, size_t n, uint64_t *channel)
{
	uint64_t copy[VERBS_CM_COMMAND_MAX / 8];
	long r;

	fermata_device_enter();
	if (unlikely(verbs_moved) && n <= sizeof(copy)) {
		memcpy(copy, data, n);
		verbs_cm_command_real(copy, n);
		data = copy;
	}
	r = verbs_backend.softrdma_cm_command(fd, data, n, channel);
	if (unlikely(verbs_moved) && r > 0)
		verbs_cm_answer_virtual(fd, data, n);
	fermata_device_leave();
	return r;
}

/*
 * GET_EVENT waits for an event as the kernel's does; our own signal cuts the poll, and it is made again. When another thread closes the descriptor
 * meanwhile, the kernel's goes on waiting, for good: so do we.
 */
long verbs_cm_write(int fd, const void *data, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t channel = 0;
	long r;

	if (!verbs_backend.softrdma_cm_command)
		return FERMATA_NOT_MINE;
	for (;;) {
		r = command(fd, data, n, &channel);
		if (r != -ESTALE && (r != -EAGAIN || (raw_fcntl(fd, F_GETFL, 0) & O_NONBLOCK)))
			return mine(r);
		if (poll(&p, r == -ESTALE ? 0 : 1, -1) < 0)
			return -errno;
	}
}

int verbs_cm_stat(int fd, struct stat *st)
{
	int r = 0;

	fermata_device_enter();
	if (verbs_backend.softrdma_cm_fstat)
		r = verbs_backend.softrdma_cm_fstat(fd, st);
	if (r && !number)
		number = st->st_rdev;
	if (r)
		st->st_rdev = number;
	fermata_device_leave();
	return r ? 0 : FERMATA_NOT_MINE;
}

int verbs_cm_close(int fd)
{
	int r = NOT_A_CHANNEL;

	fermata_device_enter();
	if (verbs_backend.softrdma_cm_close)
		r = verbs_backend.softrdma_cm_close(fd);
	fermata_device_leave();
	return (int)mine(r);
}

int verbs_path_stat(const char *path, struct stat *ret)
{
	int r = -ENOENT;

	if ((strncmp(path, "/dev/infiniband", 15) != 0 && strncmp(path, "/sys/class/infiniband", 21) != 0) || verbs_backend_load())
		return FERMATA_NOT_MINE;
	fermata_device_enter();
	if (verbs_backend.softrdma_node_stat)
		r = verbs_backend.softrdma_node_stat(path, ret);
	fermata_device_leave();
	return r ? FERMATA_NOT_MINE : 0;
}
