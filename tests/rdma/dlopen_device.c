/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds its verbs as NCCL does: dlopen of libibverbs.so, then libibverbs.so.1, and dlvsym of each name. Status 0 if a
 * device is found so, opened, and a region registered; the device's name is told. 77: there is no libibverbs.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#undef ibv_reg_mr

static const char *const names[] = {
	"ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_close_device",
	"ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device", "ibv_query_port", "ibv_query_gid",
	"ibv_query_qp", "ibv_alloc_pd", "ibv_dealloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_create_cq", "ibv_destroy_cq",
	"ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp", "ibv_fork_init", "ibv_event_type_str",
};

static const struct {
	const char *name, *version;
} newer[] = { { "ibv_reg_mr_iova2", "IBVERBS_1.8" },	{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	      { "ibv_query_ece", "IBVERBS_1.10" },	{ "ibv_set_ece", "IBVERBS_1.10" } };

static void *lib;

static void *need(const char *name, const char *version)
{
	void *p = dlvsym(lib, name, version);

	if (!p)
		printf("%s@%s is missing: %s\n", name, version, dlerror());
	return p;
}

int main(void)
{
	struct ibv_device **(*list)(int *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_context *context;
	struct ibv_device **devices;
	static char buf[4096];
	int n = 0, missing = 0;
	struct ibv_pd *pd;

	lib = dlopen("libibverbs.so", RTLD_NOW);
	if (!lib)
		lib = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!lib)
		return 77;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		missing += !need(names[i], "IBVERBS_1.1");
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		missing += !need(newer[i].name, newer[i].version);
	if (missing)
		return 1;
	list = (__typeof__(list))need("ibv_get_device_list", "IBVERBS_1.1");
	open_device = (__typeof__(open_device))need("ibv_open_device", "IBVERBS_1.1");
	alloc_pd = (__typeof__(alloc_pd))need("ibv_alloc_pd", "IBVERBS_1.1");
	reg_mr = (__typeof__(reg_mr))need("ibv_reg_mr", "IBVERBS_1.1");
	devices = list(&n);
	if (!devices || !n) {
		printf("no device\n");
		return 1;
	}
	context = open_device(devices[0]);
	pd = context ? alloc_pd(context) : NULL;
	if (!pd || !reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE)) {
		printf("%s cannot be used\n", devices[0]->name);
		return 1;
	}
	printf("%s\n", devices[0]->name);
	return 0;
}
