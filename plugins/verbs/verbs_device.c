/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices. Owns one shadow for each device that was ever listed, found again by the name of what stands behind it; they are never freed, as libibverbs
 * keeps a device that is open. The device's own list of the last look is kept too: its pointers stand in the shadows.
 */
#include "base/freeable.h"
#include "plugins/verbs/verbs_internal.h"

struct lock verbs_lock;
struct list verbs_devices = LIST_INIT(verbs_devices);
struct list verbs_contexts = LIST_INIT(verbs_contexts);
int verbs_moved;

static struct ibv_device **real_list;
static struct lock list_lock; /* real_list, and the shadows' `real` */

/* What stands behind a shadow the program goes on knowing by that one; a name that nothing stands behind any more has come back. */
static struct shadow_device *shadow_known(const struct ibv_device *real)
{
	struct shadow_device *d;

	list_each(d, &verbs_devices, link)
		if (d->real && strcmp(d->real_name, real->name) == 0)
			return d;
	list_each(d, &verbs_devices, link)
		if (!d->real && strcmp(d->pub.name, real->name) == 0)
			return d;
	return NULL;
}

static void real_set(struct shadow_device *d, struct ibv_device *real)
{
	d->real = real;
	fm_format(d->real_name, sizeof(d->real_name), "%s", real->name);
}

static struct shadow_device *shadow_of(struct ibv_device *real)
{
	struct shadow_device *d = shadow_known(real);
	const int is_new = !d;

	if (!d) {
		d = fermata_alloc(sizeof(*d));
		if (!d)
			return NULL;
		memcpy(&d->pub, real, sizeof(d->pub));
		memset(&d->pub._ops, 0, sizeof(d->pub._ops));
		verbs_list_add(&verbs_devices, &d->link);
	}
	if (!verbs_moved || is_new) { /* the device may have been plugged anew; over a restart it stays what the program was told */
		d->guid = verbs_backend.ibv_get_device_guid ? verbs_backend.ibv_get_device_guid(real) : 0;
		d->index = verbs_backend.ibv_get_device_index ? verbs_backend.ibv_get_device_index(real) : -1;
	}
	real_set(d, real);
	return d;
}

/* Ordinary memory of the program's, not the device's. */
static void *list_map(size_t len)
{
	void *p = raw_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return raw_is_error(p) ? NULL : p;
}

static struct ibv_device **shadow_list(struct ibv_device **list, int n)
{
	struct ibv_device **shadows = freeable_alloc(((size_t)n + 1) * sizeof(*shadows), list_map);

	for (int i = 0; shadows && i < n; i++) {
		struct shadow_device *d = shadow_of(list[i]);

		if (!d) {
			freeable_free(shadows, raw_munmap);
			return NULL;
		}
		shadows[i] = &d->pub;
	}
	return shadows;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list, **shadows = NULL;
	int n = 0;

	if (fermata_in_device())
		return verbs_backend.ibv_get_device_list(num);
	if (num)
		*num = 0;
	if (verbs_backend_load()) {
		errno = ENOSYS;
		return NULL;
	}
	fermata_device_enter();
	lock_acquire(&list_lock);
	list = verbs_backend.ibv_get_device_list(&n);
	if (list) {
		shadows = shadow_list(list, n);
		if (!shadows)
			errno = ENOMEM;
		if (real_list)
			verbs_backend.ibv_free_device_list(real_list);
		real_list = list;
	}
	lock_release(&list_lock);
	fermata_device_leave();
	if (shadows && num)
		*num = n;
	return shadows;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	if (fermata_in_device()) {
		verbs_backend.ibv_free_device_list(list);
		return;
	}
	freeable_free(list, raw_munmap);
}

void verbs_devices_lock(void)
{
	lock_acquire(&list_lock);
}

void verbs_devices_unlock(void)
{
	lock_release(&list_lock);
}

/* Restart: the shadows find their device again, by name, else the one at their place, else the first. */
int verbs_devices_renew(void)
{
	struct shadow_device *d;
	int n = 0, at = 0;

	fermata_device_enter();
	real_list = verbs_backend.ibv_get_device_list(&n);
	fermata_device_leave();
	if ((!real_list || n <= 0) && list_empty(&verbs_contexts)) { /* looked at, not used */
		list_each(d, &verbs_devices, link)
			d->real = NULL;
		return 0;
	}
	if (!real_list || n <= 0)
		return fermata_fail(-ENODEV, "no RDMA device here; the job had %s: restart on a host with one, or "
				    "with --rdma soft", list_empty(&verbs_devices) ? "none" :
				    container_of(verbs_devices.next, struct shadow_device, link)->pub.name);
	list_each(d, &verbs_devices, link) {
		struct ibv_device *found = real_list[at < n ? at : 0];

		for (int i = 0; i < n; i++)
			if (strcmp(real_list[i]->name, d->pub.name) == 0)
				found = real_list[i];
		real_set(d, found);
		at++;
	}
	return 0;
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	VERBS_PASS(ibv_get_device_index, -1, device);
	return shadow_device(device)->index;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	VERBS_PASS(ibv_get_device_guid, 0, device);
	return shadow_device(device)->guid;
}

EXPORT int ibv_fork_init(void)
{
	if (fermata_in_device())
		return verbs_backend.ibv_fork_init();
	if (verbs_backend_load())
		return ENOSYS;
	return verbs_backend.ibv_fork_init ? VERBS_DEVICE(verbs_backend.ibv_fork_init()) : 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (fermata_in_device())
		return verbs_backend.ibv_is_fork_initialized();
	if (verbs_backend_load() || !verbs_backend.ibv_is_fork_initialized)
		return IBV_FORK_UNNEEDED;
	return VERBS_DEVICE(verbs_backend.ibv_is_fork_initialized());
}
