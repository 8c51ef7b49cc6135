/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's places in the file system, which programs look for past libibverbs: UCX wants a character device of the device's name and may read and
 * write it, Open MPI the directory of InfiniBand devices. There is nothing there; these answer for it. No state.
 */
#include "softrdma/node.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define CHARACTER (S_IFCHR | 0600)
#define DIRECTORY (S_IFDIR | 0755)

static const struct {
	const char *path;
	mode_t mode;
	unsigned int major, minor;
} nodes[] = {
	{ "/dev/infiniband", DIRECTORY, 0, 0 },
	{ "/dev/infiniband/rdma_cm", CHARACTER, 10, 255 },
	{ "/sys/class/infiniband", DIRECTORY, 0, 0 },
};

#define UVERBS "/dev/infiniband/uverbs_soft"
#define UVERBS_MAJOR 231
#define UVERBS_MINOR 192

static void fill(struct stat *st, mode_t mode, unsigned int major, unsigned int minor)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = mode;
	st->st_rdev = makedev(major, minor);
	st->st_nlink = 1;
	st->st_uid = (uid_t)RAW0(SYS_getuid);
	st->st_gid = (gid_t)RAW0(SYS_getgid);
	st->st_blksize = FM_PAGE_SIZE;
}

/* Which device's the path is; sr_devices() or more: none's. */
static uint32_t device_of(const char *path)
{
	const char *number = path + sizeof(UVERBS) - 1;

	if (strncmp(path, UVERBS, sizeof(UVERBS) - 1) || number[0] < '0' || number[0] > '9' || number[1])
		return UINT32_MAX;
	return (uint32_t)(number[0] - '0');
}

EXPORT int softrdma_node_stat(const char *path, struct stat *st)
{
	for (size_t i = 0; path && i < ARRAY_SIZE(nodes); i++) {
		if (strcmp(path, nodes[i].path) != 0)
			continue;
		fill(st, nodes[i].mode, nodes[i].major, nodes[i].minor);
		return 0;
	}
	if (path && device_of(path) < sr_devices()) {
		fill(st, CHARACTER, UVERBS_MAJOR, UVERBS_MINOR + device_of(path));
		return 0;
	}
	return -ENOENT;
}
