/* SPDX-License-Identifier: BSD-2-Clause */
/* The provider as one of a vendor's (provider_vendor.c). */
#pragma once

#include <stdbool.h>

#include "tests/rdma/provider.h"

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN bool provider_is_vendor(void);
HIDDEN void provider_vendor_list(struct ibv_device **list); /* the device's become the vendor's */
HIDDEN struct ibv_device *provider_vendor_real(struct ibv_device *device);
HIDDEN void provider_vendor_context(struct ibv_context *context, struct ibv_device *device);
