/* SPDX-License-Identifier: BSD-2-Clause */
/* What the vendor's library (vendor.c) and the vendor's provider (provider_vendor.c) have in common. */
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>

#define VENDOR_WORD (664 / 8) /* of libibverbs' own struct around an ibv_device: whose it is */

struct vendor {
	bool (*is_ours)(struct ibv_device *device);
};
