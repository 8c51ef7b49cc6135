/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that a driver writes to the device's descriptor, said by ioctl: verbs_write.c. */
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>
#include <stddef.h>
#include <stdint.h>

union verbs_invoke {
	struct ib_uverbs_ioctl_hdr hdr;
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) + 3 * sizeof(struct ib_uverbs_attr)];
};

/* The same as @data, but for the driver's number. 0; -EOPNOTSUPP: it is no command that is known here; -EMSGSIZE: it is too long. */
int verbs_invoke_pack(const void *data, size_t n, union verbs_invoke *ret);
/* A plugin's device_write. */
long verbs_device_write(int fd, const void *data, size_t n);
