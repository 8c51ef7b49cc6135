/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the device's library: which one, and the table of its functions. It is loaded once, at the program's first look for
 * devices, into a scope of its own, so that nothing binds to it by name; it stays.
 *
 * `--rdma auto` takes the system's libibverbs when the kernel shows a device, else softrdma. The system's library is opened as
 * libibverbs-real.so.1 where `fermata launch` has laid that name beside our shim, because there libibverbs.so.1 is the shim.
 *
 * A restart may have to go on with softrdma where there was a system's library (--rdma), at a time when libc cannot be had: so both are loaded then. The
 * other way round the system's library is loaded by the restart itself, which libc has been lent to (fermata_libc_borrow). softrdma's does rdma_cm for the kernel's devices, too.
 *
 * Loading takes libc's and the dynamic linker's locks, which a stopped thread may hold: it happens outside fermata_enter/leave.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "plugins/verbs/verbs_internal.h"

struct verbs_backend verbs_backend;

static struct verbs_backend spare; /* the other one, if it is loaded: not used but after a restart */
static int cm_of_kernel; /* as it was asked for */
static struct lock load_lock;
static _Atomic int load_state; /* 0: not tried, 1: loaded, else -errno */

static void *open_soft(void)
{
	const char *dir = fermata_libdir();
	char path[512];
	void *handle;

	fm_format(path, sizeof(path), "%s/libsoftrdma.so", dir);
	handle = dlopen(*dir ? path : "libsoftrdma.so", RTLD_NOW | RTLD_LOCAL);
	if (!handle && !*dir) { /* beside libfermata.so */
		Dl_info self;
		char *end;

		if (!dladdr(&verbs_backend, &self))
			return NULL;
		fm_format(path, sizeof(path) - sizeof("libsoftrdma.so"), "%s", self.dli_fname);
		end = strrchr(path, '/');
		memcpy(end ? end + 1 : path, "libsoftrdma.so", sizeof("libsoftrdma.so"));
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return handle;
}

static void *open_system(void)
{
	void *handle = dlopen("libibverbs-real.so.1", RTLD_NOW | RTLD_LOCAL);

	return handle ? handle : dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
}

static int found_one(const char *name, void *arg)
{
	return strncmp(name, "uverbs", 6) == 0;
}

static int want_system(void)
{
	const char *option = fermata_option_rdma();

	if (option && strcmp(option, "system") == 0)
		return 1;
	if (option && strcmp(option, "soft") == 0)
		return 0;
	return raw_dir_each("/sys/class/infiniband_verbs", found_one, NULL) == 1;
}

static int want_cm_of_kernel(void)
{
	const char *who = getenv("FERMATA_RDMA_CM");

	return who && !strcmp(who, "kernel");
}

static void device_enter(void)
{
	fermata_enter_open();
	fermata_thread.device_depth++;
}

static void device_leave(void)
{
	fermata_device_leave();
}

static int backend_open(struct verbs_backend *b, int soft)
{
	b->soft = soft;
	b->handle = soft ? open_soft() : open_system();
	if (!b->handle) {
		log_error("cannot load the RDMA device's library: %s", dlerror());
		return -ENODEV;
	}
#define LOOK_UP(answer, name, parameters) b->name = (__typeof__(b->name))dlsym(b->handle, #name);
	VERBS_NAMES(LOOK_UP)
	if (b->soft) {
		VERBS_SOFT_NAMES(LOOK_UP)
		VERBS_CM_NAMES(LOOK_UP)
		if (b->softrdma_memory)
			b->softrdma_memory(fermata_device_map, fermata_device_unmap);
		if (b->softrdma_exit_bracket)
			b->softrdma_exit_bracket(device_enter, device_leave);
	}
#undef LOOK_UP
	if (b->ibv_get_device_list && b->ibv_open_device)
		return 0;
	b->handle = NULL;
	return -ENODEV;
}

/*
 * rdma_cm of the kernel's devices is ours where it can be: what the kernel's own holds nobody can give it again. Ports of RoCE name themselves by their addresses, so
 * softrdma's needs nothing else of them. Programs out of the job it does not reach; who needs those says so (FERMATA_RDMA_CM=kernel) and is not checkpointed meanwhile.
 */
static void cm_choose(struct verbs_backend *b, const struct verbs_backend *other)
{
	const struct verbs_backend *soft = b->soft ? b : other;

#define TAKE(answer, name, parameters) b->name = ours ? soft->name : NULL;
	if (soft->softrdma_cm_kernel) {
		int count = soft->softrdma_cm_kernel(b->soft ? NULL : "/sys/class/infiniband"), ours = b->soft || (count && !cm_of_kernel);

		VERBS_CM_NAMES(TAKE)
	}
#undef TAKE
}

/* Within the lock that a fork waits for: a child has all names or none. */
static int learn_kept(void)
{
	int r;

	fermata_enter();
	verbs_devices_lock();
	r = verbs_fabric_learn_kept();
	verbs_devices_unlock();
	fermata_leave();
	return r;
}

/* The libraries that a first look needs, as things stand now; what is loaded already stays. 0 or -errno: of the one that is wanted. */
static int open_wanted(struct verbs_backend *system, struct verbs_backend *soft, int want)
{
	int r = want && !system->handle ? backend_open(system, 0) : 0, spared = soft->handle ? 0 : backend_open(soft, 1);

	return want ? r : spared;
}

/*
 * Loading takes its time, and a restart may come into it, on another host or with another --rdma: then another one is wanted now. Between the last look at that and its
 * being known there is no checkpoint; from then on a restart changes it (verbs_backend_renew).
 */
static void load(void)
{
	struct verbs_backend system = { 0 }, soft = { 0 };
	int want, r, settled;

	do {
		want = want_system();
		r = open_wanted(&system, &soft, want);
		fermata_libc_reserve(want);
		fermata_enter();
		settled = want == want_system();
		if (settled && !r) {
			verbs_backend = want ? system : soft;
			spare = want ? soft : system;
			cm_choose(&verbs_backend, &spare);
		}
		if (settled)
			load_state = r ? r : 1;
		fermata_leave();
	} while (!settled);
}

int verbs_backend_load(void)
{
	int r;

	if (likely(load_state == 1))
		return 0;
	lock_acquire(&load_lock);
	if (!load_state) {
		cm_of_kernel = want_cm_of_kernel();
		r = learn_kept();
		if (r)
			load_state = r;
		else
			load();
	}
	lock_release(&load_lock);
	return load_state == 1 ? 0 : load_state;
}

/* A kernel's device is taken instead of softrdma when it is asked for; softrdma where no such device is. */
static int want_other(void)
{
	const char *option = fermata_option_rdma();

	return verbs_backend.soft ? option && strcmp(option, "system") == 0 : !want_system();
}

int verbs_backend_renew(void)
{
	struct verbs_backend before = verbs_backend;
	int r = 0, other = load_state == 1 && want_other();

	if (load_state != 1)
		return 0;
	if (other ? before.soft : !before.soft)
		r = fermata_libc_borrow();
	if (r)
		return r;
	if (!other) {
		cm_choose(&verbs_backend, &spare); /* another host's ports, perhaps */
		return 0;
	}
	if (before.soft && !spare.handle && backend_open(&spare, 0))
		return fermata_fail(-ENODEV, "the library of the kernel's RDMA devices (libibverbs.so.1) cannot be loaded; --rdma soft does without");
	if (!spare.ibv_open_device)
		return fermata_fail(-ENODEV, "softrdma was not there when the job was launched: restart on a host with the RDMA device");
	cm_choose(&spare, &before);
	verbs_backend = spare;
	spare = before;
	return 0;
}

/* Another thread of the parent may have been loading: libc, which fork looks after, decides whether the child can. */
void verbs_backend_forked(void)
{
	load_lock = (struct lock){ 0 };
}
