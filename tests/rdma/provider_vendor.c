/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The provider as one of a vendor's (PROVIDER_VENDOR names the vendor's library, vendor.c): its devices are that library's, and none of what a context has below plain
 * verbs may be called. Owns the devices, which lie as libibverbs has them: behind the public struct there is a word that says whose they are.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "tests/rdma/provider_vendor.h"
#include "tests/rdma/vendor.h"

#define DEVICES 8
/* All that stands for an object or a way of working that plain verbs have not. */
#define TRAPS(X)                                                                                                                      \
	X(read_counters) X(attach_counters_point_flow) X(create_counters) X(destroy_counters) X(reg_dm_mr) X(alloc_dm) X(free_dm)    \
	X(modify_flow_action_esp) X(destroy_flow_action) X(create_flow_action_esp) X(modify_qp_rate_limit) X(alloc_parent_domain)    \
	X(dealloc_td) X(alloc_td) X(modify_cq) X(post_srq_ops) X(destroy_rwq_ind_table) X(create_rwq_ind_table) X(destroy_wq)        \
	X(modify_wq) X(create_wq) X(create_cq_ex) X(ibv_destroy_flow) X(ibv_create_flow) X(open_qp) X(create_qp_ex) X(create_srq_ex) \
	X(open_xrcd) X(close_xrcd)

static struct {
	struct ibv_device *real;
	union {
		struct ibv_device public;
		const void *words[VENDOR_WORD + 12];
	} seen;
} devices[DEVICES];

static struct vendor *vendor;

bool provider_is_vendor(void)
{
	const char *path = getenv("PROVIDER_VENDOR");
	void *library;

	if (!vendor && path) {
		library = dlopen(path, RTLD_NOW);
		MUST(library && (vendor = dlsym(library, "vendor")));
	}
	return vendor;
}

void provider_vendor_list(struct ibv_device **list)
{
	for (int i = 0; list && list[i]; i++) {
		MUST(i < DEVICES);
		devices[i].real = list[i];
		devices[i].seen.public = *list[i];
		devices[i].seen.words[VENDOR_WORD] = vendor;
		list[i] = &devices[i].seen.public;
		MUST(vendor->is_ours(list[i]));
	}
}

struct ibv_device *provider_vendor_real(struct ibv_device *device)
{
	for (int i = 0; i < DEVICES; i++)
		if (device == &devices[i].seen.public)
			return devices[i].real;
	return device;
}

#define TRAP(name)                                                             \
	static void trap_##name(void)                                          \
	{                                                                      \
		dprintf(2, "provider: " #name " was called of a vendor's\n"); \
		abort();                                                       \
	}
TRAPS(TRAP)

void provider_vendor_context(struct ibv_context *context, struct ibv_device *device)
{
	struct verbs_context *v = verbs_get_ctx(context);

	MUST(v && v->sz == sizeof(*v));
#define SET(name) v->name = (__typeof__(v->name))(void *)trap_##name;
	TRAPS(SET)
#undef SET
	context->device = device;
}
