/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the library tells of a channel to who stands in front of it (cm_file.c, libfermata): that it is a device's file, which device an id is of, its ends' addresses, and which process is at its
 * other end. No state.
 */
#include "softrdma/cm.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "softrdma/device.h"

EXPORT uint64_t softrdma_cm_ends(int fd, uint32_t handle, void *own, void *other)
{
	struct cm_place p = { .guid = 0 };
	struct cm_channel *ch;
	struct cm_mcast *mc;
	struct cm_id *id;

	memset(own, 0, 16);
	memset(other, 0, 16);
	if (!cm_channel_is_own(fd))
		return 0;
	lock_acquire(&cm_lock);
	ch = cm_channel_find(fd);
	mc = ch ? cm_handle_find(handle, CM_KIND_MCAST) : NULL;
	id = mc ? mc->id : ch ? cm_handle_find(handle, CM_KIND_ID) : NULL;
	if (id && id->has_device) {
		cm_place_of(id, &p);
		cm_address_gid(&id->src, own);
		cm_address_gid(&id->dst, other);
	}
	lock_release(&cm_lock);
	return p.guid;
}

EXPORT uint32_t softrdma_cm_peer(int fd, uint32_t id)
{
	struct cm_channel *ch;
	struct cm_id *own;
	uint32_t pid;

	if (!cm_channel_is_own(fd))
		return 0;
	lock_acquire(&cm_lock);
	ch = cm_channel_find(fd);
	own = ch ? cm_id_find(ch, id) : NULL;
	pid = own && own->state >= CM_REQ_SENT ? own->conn.remote_pid : 0;
	lock_release(&cm_lock);
	return pid;
}

/* The number of the kernel's own device, where it has one: librdmacm may have been told it. */
static dev_t device_number(void)
{
	dev_t number = raw_read_device("/sys/class/misc/rdma_cm/dev");

	return number ? number : makedev(10, 255);
}

EXPORT int softrdma_cm_fstat(int fd, struct stat *st)
{
	int mine;

	if (!cm_channel_is_own(fd))
		return 0;
	lock_acquire(&cm_lock);
	mine = cm_channel_find(fd) != NULL;
	lock_release(&cm_lock);
	if (!mine)
		return 0;
	st->st_mode = S_IFCHR | 0600;
	st->st_rdev = device_number();
	return 1;
}
